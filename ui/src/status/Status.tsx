// Whether the server does what it should, and how far behind it is.

import type { Schemas } from "../api/client"
import { useGet } from "../api/queryCache"
import { When } from "../kit/basics"
import { useTitle } from "../kit/hooks"
import { Loaded } from "../kit/states"
import { bytesText, countText, visible } from "../lib/format"

const EVERY_MS = 5000

type SystemStatus = Schemas["SystemStatusOut"]

export default function StatusPage({ zone }: { zone: string }) {
  useTitle("System status")
  const status = useGet("/api/system_status/", {}, {}, EVERY_MS)
  return (
    <>
      <header class="page-head">
        <h1>System status</h1>
      </header>
      <Loaded answer={status}>{(found) => <Found found={found} zone={zone} />}</Loaded>
    </>
  )
}

const seconds = (value: number | null) => (value === null ? "none" : value < 1 ? "under 1 s" : `${countText(value)} s`)

function Found({ found, zone }: { found: SystemStatus; zone: string }) {
  const facts: [string, string, string?][] = [
    ["Events waiting in the log", countText(found.event_log.waiting_records), `${bytesText(found.event_log.waiting_bytes)} of ${bytesText(found.event_log.limit_bytes)}`],
    ["Oldest waiting event", seconds(found.event_log.oldest_s)],
    ["Ingested", `${countText(found.ingestion.events_per_s)} per s`, found.event_log.oldest_s === null ? "nothing waits" : `${seconds(found.ingestion.lag_s)} behind`],
    ["Runs of functions waiting", countText(found.delivery.waiting), `${countText(found.delivery.running)} running`],
    ["Dead letters", countText(found.delivery.dead)],
    ["Oldest run that is due", seconds(found.delivery.oldest_due_s)],
    ["Results being computed", countText(found.results.running)],
    ["Processes for functions", countText(found.functions.processes), `${countText(found.functions.busy)} busy`],
    ["Disk free", bytesText(found.disk_free_bytes)],
    ["Memory", bytesText(found.memory_bytes)],
    ["Open streams", countText(found.streams)],
  ]
  const fine = found.ready && found.warnings.length === 0
  return (
    <>
      <section class={`card ${fine ? "ok" : "bad"}`} aria-live="polite">
        <h2>{fine ? "Everything works" : found.ready ? "The server works, but has problems" : "The server is not ready"}</h2>
        {found.reasons.map((reason) => (
          <p key={reason}>{visible(reason)}</p>
        ))}
        {found.warnings.map((warning) => (
          <p key={warning.code}>
            <strong>{visible(warning.message)}</strong> {visible(warning.hint ?? "")}
          </p>
        ))}
        {found.results.last_error && <p>The last computation of results failed: {visible(found.results.last_error)}</p>}
        <p class="quiet">
          hoglab {visible(found.version)}, started <When at={found.started_at} zone={zone} />. Refreshed every five seconds.
        </p>
      </section>
      <section class="part">
        <h2>Now</h2>
        <dl class="facts">
          {facts.map(([name, value, more]) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd>
                {value} {more && <span class="quiet">{more}</span>}
              </dd>
            </div>
          ))}
        </dl>
      </section>
      <section class="part">
        <h2>Storage</h2>
        <div class="card table-card" tabindex={0} role="region" aria-label="Storage">
        <table class="list">
          <thead>
            <tr>
              <th scope="col">File</th>
              <th scope="col" class="number">Size</th>
            </tr>
          </thead>
          <tbody>
            {found.storage.map((file) => (
              <tr key={file.name}>
                <th scope="row">
                  <code>{file.name}</code>
                </th>
                <td class="number">{bytesText(file.bytes)}</td>
              </tr>
            ))}
          </tbody>
        </table>
        </div>
      </section>
    </>
  )
}
