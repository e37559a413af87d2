// Events as they come in.

import { useEffect, useState } from "preact/hooks"
import { address } from "../api/client"
import { useStream } from "../api/stream"
import { Button, Link } from "../kit/basics"
import { Json } from "../kit/json"
import { usePlace, useTitle } from "../kit/hooks"
import { clipped, counted, countText } from "../lib/format"
import { pathOf } from "../lib/router"
import { chosenOf, eventQuery } from "./filters"
import { FilterBar } from "./FilterBar"
import { held, MOST, NOTHING, type Paused, taken } from "./live"
import { EventTable } from "./rows"

const KINDS = ["event", "skipped", "rate", "warning"] as const
const SHOWN = 100
const EMPTY: Paused = { live: NOTHING, meanwhile: [] }

export default function LiveEvents({ project, zone }: { project: string; zone: string }) {
  useTitle("Live events")
  const { query } = usePlace()
  const chosen = chosenOf(query)
  const [{ live, meanwhile }, setShown] = useState<Paused>(EMPTY)
  const [paused, setPaused] = useState(false)
  const { event, distinct_id, properties } = eventQuery({ ...chosen, range: "" }, new Date())
  const url = address("/api/projects/{project_id}/events/live/", { project_id: project }, { event, distinct_id, properties })
  const stream = useStream(url, KINDS, (messages) => {
    setShown((now) => (paused ? held(now, messages) : { live: taken(now.live, messages), meanwhile: [] }))
  })
  useEffect(() => setShown(EMPTY), [url])
  const toggle = () => {
    setPaused(!paused)
    setShown((now) => ({ live: taken(now.live, now.meanwhile), meanwhile: [] }))
  }
  return (
    <>
      <header class="page-head">
        <h1 class="grow">Live events</h1>
        <Button pressed={paused} onClick={toggle}>
          {paused ? "Resume" : "Pause"}
        </Button>
      </header>
      <FilterBar ranges={false} />
      <p>
        <span class="quiet">{stream.connected ? "Connected." : "Connecting …"}</span>{" "}
        {live.rate && (
          <>
            <span class="rate">{countText(live.rate.received_per_s)}</span> received per second
          </>
        )}
        {live.skipped > 0 && <span class="quiet"> · {countText(live.skipped)} skipped, to keep this page usable</span>}
        {paused && <span class="quiet"> · paused, {counted(meanwhile.length, "event")} meanwhile{meanwhile.length === MOST && " or more"}</span>}
      </p>
      {live.warnings.map((warning, at) => (
        <div class="caution" key={`${warning.timestamp} ${at}`}>
          <p>
            <strong>Ingestion dropped or changed an event: {clipped(String(warning.type).replaceAll("_", " "), 100)}</strong>
          </p>
          <Json value={warning.details} />
        </div>
      ))}
      {live.events.length === 0 ? (
        <div class="empty">
          <h2>Waiting for events</h2>
          <p>
            New events appear here within two seconds. If nothing appears, check that your SDK has the address and the token of <Link to={pathOf("p", project, "setup")}>the set-up page</Link>.
          </p>
        </div>
      ) : (
        <EventTable events={live.events.slice(0, SHOWN)} project={project} zone={zone} columns={[]} label="Live events" />
      )}
    </>
  )
}
