// A row of a list of events, which opens to everything that is known of the event.

import { useState } from "preact/hooks"
import { Link, Name, When } from "../kit/basics"
import { Json } from "../kit/json"
import { clipped } from "../lib/format"
import { pathOf } from "../lib/router"
import { Create } from "./Create"
import { NO_FILTER, whereText } from "./filters"
import type { Event } from "./model"

interface Props {
  event: Event
  project: string
  zone: string
  columns: readonly string[]
}

function shown(value: unknown): string {
  if (value === undefined) return "–"
  return clipped(typeof value === "string" ? value : JSON.stringify(value), 80)
}

/** All events of a session. */
function sessionQuery(session: string): URLSearchParams {
  return new URLSearchParams({ where: whereText([{ ...NO_FILTER, key: "$session_id", value: session }]) })
}

export function EventRow({ event, project, zone, columns }: Props) {
  const [open, setOpen] = useState(false)
  const session = event.properties.$session_id
  return (
    <>
      <tr>
        <td>
          <button type="button" class="inline" data-row aria-expanded={open} onClick={() => setOpen(!open)}>
            <span aria-hidden="true">{open ? "▾" : "▸"}</span> <Name text={event.event} />
          </button>
        </td>
        <td data-label="Person">
          <Link to={pathOf("p", project, "person", event.distinct_id)}>
            <Name text={event.person?.name ?? event.distinct_id} />
          </Link>
        </td>
        {columns.map((column) => (
          <td key={column} data-label={clipped(column, 80)}>
            <bdi>{shown(event.properties[column])}</bdi>
          </td>
        ))}
        <td data-label="Time">
          <When at={event.timestamp} zone={zone} precise />
        </td>
      </tr>
      {open && (
        <tr>
          <td colspan={3 + columns.length} class="opened">
            <div class="actions of-event">
              <Link class="button quiet" to={pathOf("p", project, "events", event.uuid)}>
                Open event
              </Link>
              {typeof session === "string" && (
                <Link class="button quiet" to={pathOf("p", project, "events")} query={sessionQuery(session)}>
                  Show session
                </Link>
              )}
              <Create event={event} project={project} />
            </div>
            <Json value={event.properties} />
          </td>
        </tr>
      )}
    </>
  )
}

interface TableProps {
  events: readonly Event[]
  project: string
  zone: string
  columns: readonly string[]
  label: string
}

export function EventTable({ events, project, zone, columns, label }: TableProps) {
  return (
    <div class="card table-card" tabindex={0} role="region" aria-label={label}>
      <table class="list stack events">
        <thead>
          <tr>
            <th scope="col">Event</th>
            <th scope="col">Person</th>
            {columns.map((column) => (
              <th scope="col" key={column}>
                <Name text={column} />
              </th>
            ))}
            <th scope="col">Time ({zone})</th>
          </tr>
        </thead>
        <tbody>
          {events.map((event) => (
            <EventRow key={event.uuid} event={event} project={project} zone={zone} columns={columns} />
          ))}
        </tbody>
      </table>
    </div>
  )
}
