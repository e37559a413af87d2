// How many of the chosen events there were over time.

import { useEffect, useState } from "preact/hooks"
import { post } from "../api/client"
import { told } from "../kit/states"
import { StackedDays } from "../plots/bars"
import { counted } from "../lib/format"
import { dayText } from "../lib/time"
import { type Chosen, trendOf } from "./filters"

interface Counts {
  days: string[]
  data: number[]
  /** What was counted. */
  words: string
}

export function Histogram({ project, zone, chosen }: { project: string; zone: string; chosen: Chosen }) {
  const [found, setFound] = useState<Counts | null>(null)
  const [fault, setFault] = useState<string | null>(null)
  const trend = trendOf(chosen)
  const query = JSON.stringify(trend.query)
  const { words } = trend
  useEffect(() => {
    let gone = false
    setFault(null)
    post("/api/projects/{project_id}/query/", { project_id: project }, { query: JSON.parse(query) as unknown }).then(
      (answer) => {
        const series = answer.results?.[0]
        // A query in SQL would be answered by rows, which are lists.
        if (!gone) setFound(series && !Array.isArray(series) ? { ...series, words } : null)
      },
      (error: unknown) => gone || setFault(told(error).detail),
    )
    return () => {
      gone = true
    }
  }, [project, query])
  if (fault !== null) return <p class="quiet">They could not be counted over time: {fault}</p>
  const all = found?.data.reduce((sum, count) => sum + count, 0) ?? 0
  const title = `${counted(all, "event")} ${found?.words ?? words}`
  return (
    <section class="card histogram" aria-label="Events over time">
      <p>
        {found === null ? "Counting …" : title} <span class="quiet">({zone})</span>
      </p>
      <StackedDays days={found?.days ?? []} stacks={[{ key: "events", place: 1, counts: found?.data ?? [] }]} title={title} label={(day) => (day.length > 10 ? day.slice(11, 16) : dayText(day))} />
    </section>
  )
}
