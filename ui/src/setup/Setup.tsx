// The first steps: snippets with this server's address and token, and the first event as it comes in.

import { useEffect, useState } from "preact/hooks"
import { address, type Schemas } from "../api/client"
import { useGet } from "../api/queryCache"
import { lacks } from "../api/session"
import { useStream } from "../api/stream"
import { Copy, Link, Name, When } from "../kit/basics"
import { Json } from "../kit/json"
import { Tabs } from "../kit/forms"
import { usePlace, useTitle } from "../kit/hooks"
import { Failure, Loaded } from "../kit/states"
import { clipped } from "../lib/format"
import { pathOf } from "../lib/router"
import { WORDS } from "../lib/words"
import { snippets } from "./snippets"

export default function SetupPage({ project, zone }: { project: string; zone: string }) {
  useTitle("Set-up")
  const { query } = usePlace()
  const found = useGet("/api/projects/{project_id}/", { project_id: project })
  const missing = lacks("query:read")
  const host = new URL(address("/"), window.location.href).href.replace(/\/$/, "")
  return (
    <>
      <header class="page-head">
        <div class="grow">
          <h1>Set-up</h1>
          <p class="lead">SDKs take the address of this server as their host, and the token of the project. The token is public: it can only send events and ask for flags.</p>
        </div>
      </header>
      {missing ? <p class="card">{WORDS.needsScope(missing)} So this page cannot show whether an event came.</p> : <Waiting project={project} zone={zone} />}
      <Loaded answer={found}>
        {({ api_token: token }) => {
          const all = snippets(host, token)
          const chosen = all.find((each) => each.key === query.get("sdk")) ?? all[0]
          return (
            <section class="part">
              <h2>Send an event</h2>
              <Tabs tabs={all.map((each) => [each.key, each.name] as const)} current={chosen?.key ?? ""} to={(key) => ({ path: pathOf("p", project, "setup"), query: new URLSearchParams({ sdk: key }) })} />
              {chosen && (
                <div class="code">
                  <pre tabindex={0}>{chosen.code}</pre>
                  <Copy text={chosen.code} label={`the snippet for ${chosen.name}`} />
                </div>
              )}
            </section>
          )
        }}
      </Loaded>
    </>
  )
}

const KINDS = ["event", "warning"] as const

interface Dropped {
  type: string
  details: Record<string, unknown>
}

/** "Waiting for your first event", until it comes; one that was dropped meanwhile shows why. */
function Waiting({ project, zone }: { project: string; zone: string }) {
  const stored = useGet("/api/projects/{project_id}/events/", { project_id: project }, { limit: 1 })
  const [newest, setNewest] = useState<Schemas["EventOut"] | null>(null)
  const [dropped, setDropped] = useState<Dropped | null>(null)
  const { connected } = useStream(address("/api/projects/{project_id}/events/live/", { project_id: project }), KINDS, (messages) => {
    for (const { kind, data } of messages) {
      if (kind === "event") setNewest(data as Schemas["EventOut"])
      else setDropped(data as Dropped)
    }
  })
  // What came between the answer and the stream is in neither.
  useEffect(() => {
    if (connected) stored.refetch()
  }, [connected])
  const event = newest ?? stored.value?.results[0]
  if (stored.error !== undefined && stored.value === undefined) return <Failure error={stored.error} refetch={stored.refetch} />
  return (
    <section class={`card ${event ? "ok" : ""}`} aria-live="polite" aria-label="First event">
      {event === undefined ? (
        <p class="waiting">
          <strong>Waiting for your first event …</strong> <span class="quiet">{connected ? "It appears here within two seconds." : "Connecting …"}</span>
        </p>
      ) : (
        <>
          <p>
            ✓{" "}
            <strong>
              <Name text={event.event} />
            </strong>{" "}
            from <Name text={event.distinct_id} />, <When at={event.timestamp} zone={zone} />. <Link to={pathOf("p", project, "events", "live")}>Live events</Link>
          </p>
          {Object.keys(event.properties).length > 0 && (
            <details open>
              <summary>Properties</summary>
              <Json value={event.properties} />
            </details>
          )}
        </>
      )}
      {dropped && (
        <div class="caution" role="alert">
          <p>
            <strong>Ingestion dropped or changed an event: {clipped(String(dropped.type).replaceAll("_", " "), 100)}</strong>
          </p>
          <Json value={dropped.details} />
        </div>
      )}
    </section>
  )
}
