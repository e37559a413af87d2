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
}

export function Histogram({ project, zone, chosen }: { project: string; zone: string; chosen: Chosen }) {
  const [found, setFound] = useState<Counts | null>(null)
  const [fault, setFault] = useState<string | null>(null)
  const trend = trendOf(chosen)
  const query = JSON.stringify(trend.query)
  useEffect(() => {
    let gone = false
    setFault(null)
    post("/api/projects/{project_id}/query/", { project_id: project }, { query: JSON.parse(query) as unknown }).then(
      (answer) => {
        if (!gone) setFound(answer.results?.[0] ?? null)
      },
      (error: unknown) => gone || setFault(told(error).detail),
    )
    return () => {
      gone = true
    }
  }, [project, query])
  if (fault !== null) return <p class="quiet">They could not be counted over time: {fault}</p>
  const all = found?.data.reduce((sum, count) => sum + count, 0) ?? 0
  const title = `${counted(all, "event")} ${trend.words}`
  return (
    <section class="card histogram" aria-label="Events over time">
      <p>
        {found === null ? "Counting …" : title} <span class="quiet">({zone})</span>
      </p>
      <StackedDays days={found?.days ?? []} stacks={[{ key: "events", place: 1, counts: found?.data ?? [] }]} title={title} label={(day) => (day.length > 10 ? day.slice(11, 16) : dayText(day))} />
    </section>
  )
}
