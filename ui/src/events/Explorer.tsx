// The stored events of a project, newest first.

import { useState } from "preact/hooks"
import { get } from "../api/client"
import { useGet } from "../api/queryCache"
import { Button, Link } from "../kit/basics"
import { usePlace, useTitle } from "../kit/hooks"
import { Empty, Failure, Loaded } from "../kit/states"
import { counted, visible } from "../lib/format"
import { ask, pathOf } from "../lib/router"
import { justAfter } from "../lib/time"
import { chosenOf, eventQuery } from "./filters"
import { FilterBar } from "./FilterBar"
import { Histogram } from "./Histogram"
import type { Event } from "./model"
import { EventTable } from "./rows"

const PAGE = 100

/** The properties that the shown events have, those of most events first. */
export function columnChoices(events: readonly Event[]): string[] {
  const counts = new Map<string, number>()
  for (const event of events) for (const key of Object.keys(event.properties)) counts.set(key, (counts.get(key) ?? 0) + 1)
  return [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).map(([key]) => key).slice(0, 60)
}

export default function Explorer({ project, zone }: { project: string; zone: string }) {
  useTitle("Events")
  const { query } = usePlace()
  const chosen = chosenOf(query)
  const search = eventQuery(chosen, new Date())
  const key = JSON.stringify(search)
  const events = useGet("/api/projects/{project_id}/events/", { project_id: project }, { ...search, limit: PAGE })
  const columns = (query.get("columns") ?? "").split(",").filter(Boolean)
  const toggle = (column: string, on: boolean) => ask({ columns: (on ? [...columns, column] : columns.filter((each) => each !== column)).join(",") })
  return (
    <>
      <header class="page-head">
        <h1 class="grow">Events</h1>
        <Link class="button" to={pathOf("p", project, "events", "live")}>
          Watch live
        </Link>
      </header>
      <FilterBar ranges />
      {/* The API counts by event and properties; of one distinct id there is the list alone. */}
      {chosen.distinctId === "" && <Histogram project={project} zone={zone} chosen={chosen} />}
      <Loaded answer={events} rows={12}>
        {({ results }) =>
          results.length === 0 ? (
            <Empty title="No matching events">
              <p>No stored event matches these filters. Remove a filter, or choose a longer time.</p>
            </Empty>
          ) : (
            <>
              <details class="filters">
                <summary>Columns</summary>
                {columnChoices(results).map((column) => (
                  <label class="filter" key={column}>
                    <input type="checkbox" checked={columns.includes(column)} onChange={(event) => toggle(column, event.currentTarget.checked)} />
                    <bdi>{visible(column.slice(0, 80))}</bdi>
                  </label>
                ))}
              </details>
              <Older key={key} first={results} project={project} zone={zone} columns={columns} search={search} />
            </>
          )
        }
      </Loaded>
    </>
  )
}

interface OlderProps {
  first: Event[]
  project: string
  zone: string
  columns: string[]
  search: ReturnType<typeof eventQuery>
}

/** Where the page after these events begins: many may have happened at one moment, of which some are here. */
export function pageAfter(events: readonly Event[]): { before?: string; offset?: number } {
  const last = events.at(-1)?.timestamp
  return last === undefined ? {} : { before: justAfter(last), offset: events.filter((event) => event.timestamp === last).length }
}

/** The first page and those that were asked for after it, each from the last event of the one before. */
function Older({ first, project, zone, columns, search }: OlderProps) {
  const [more, setMore] = useState<Event[]>([])
  const [end, setEnd] = useState(first.length < PAGE)
  const [fault, setFault] = useState<unknown>(null)
  const events = [...first, ...more]
  const load = async () => {
    setFault(null)
    try {
      const next = await get("/api/projects/{project_id}/events/", { project_id: project }, { ...search, limit: PAGE, ...pageAfter(events) })
      const known = new Set(events.map((event) => event.uuid))
      setMore([...more, ...next.results.filter((event) => !known.has(event.uuid))])
      setEnd(next.results.length < PAGE)
    } catch (error) {
      setFault(error)
    }
  }
  return (
    <>
      <EventTable events={events} project={project} zone={zone} columns={columns} label="Events" />
      {fault !== null && <Failure error={fault} refetch={() => void load()} />}
      <div class="pages">
        <span class="quiet">{counted(events.length, "event")} shown</span>
        {!end && <Button onClick={() => void load()}>Load older</Button>}
      </div>
    </>
  )
}
