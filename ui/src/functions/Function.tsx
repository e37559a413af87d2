// A function as it is, with its newest log lines; it is changed over the API.

import { useGet } from "../api/queryCache"
import { Badge, Name, Theirs, When } from "../kit/basics"
import { Select } from "../kit/forms"
import { usePlace, useTitle } from "../kit/hooks"
import { Json } from "../kit/json"
import { Loaded } from "../kit/states"
import { functionFilterTexts } from "../lib/conditions"
import { clipped, countText, MISSING, visible } from "../lib/format"
import { ask } from "../lib/router"
import { countName, stateOf } from "./state"

const EVERY_MS = 10_000
/** The choices of log levels, as the API takes them. */
const LEVELS = [["", "All"], ["LOG,INFO,WARN,ERROR", "Info and above"], ["WARN,ERROR", "Warnings and errors"], ["ERROR", "Errors"]] as const

export default function FunctionPage({ project, zone, id }: { project: string; zone: string; id: string }) {
  const parts = { project_id: project, function_id: id }
  const chosen = usePlace().query.get("level")
  const level = LEVELS.find(([key]) => key === chosen)?.[0] ?? ""
  const hog = useGet("/api/projects/{project_id}/hog_functions/{function_id}/", parts)
  const logs = useGet("/api/projects/{project_id}/hog_functions/{function_id}/logs/", parts, { limit: 50, level })
  const totals = useGet("/api/projects/{project_id}/hog_functions/{function_id}/metrics/totals/", parts, { breakdown_by: "name" })
  const breaker = useGet("/api/projects/{project_id}/hog_functions/{function_id}/status/", parts, {}, EVERY_MS)
  const healths = useGet("/api/projects/{project_id}/hog_functions/health/", { project_id: project }, {}, EVERY_MS)
  const dead = useGet("/api/projects/{project_id}/hog_functions/dead_letters/", { project_id: project }, { function_id: id, limit: 1 })
  const health = healths.value?.find((each) => each.id === id) ?? null
  useTitle(hog.value?.name ? clipped(hog.value.name, 80) : "Function")
  return (
    <Loaded answer={hog}>
      {(found) => {
        const state = stateOf(found.enabled === true, breaker.value?.state ?? null, health)
        return (
        <>
          <header class="page-head">
            <h1>
              <Name text={found.name ?? "Function without a name"} /> <Badge kind={state.kind}>{state.word}</Badge> <Badge>{String(found.type).replaceAll("_", " ")}</Badge>
            </h1>
          </header>
          {found.description && (
            <p>
              <Theirs text={found.description} most={600} />
            </p>
          )}
          <p class="quiet">
            Version {found.version}, changed <When at={found.updated_at} zone={zone} />.
          </p>
          {state.why && (
            <div class="caution" role="note">
              <p>
                <strong>{state.why}</strong>
              </p>
              {health?.last_error && (
                <p>
                  Last error, <When at={health.last_error.timestamp} zone={zone} />: <Theirs text={health.last_error.message} most={300} />
                </p>
              )}
            </div>
          )}
          <section class="part">
            <h2>Now</h2>
            <dl class="facts">
              {([["Runs waiting", health?.unfinished ?? 0], ["Failed in 24 hours", health?.failed ?? 0], ["Succeeded in 24 hours", health?.succeeded ?? 0], ["Dead letters", dead.value?.count]] as const).map(([name, count]) => (
                <div key={name}>
                  <dt>{name}</dt>
                  <dd>{healths.value === undefined || count === undefined ? MISSING : countText(count)}</dd>
                </div>
              ))}
            </dl>
          </section>
          <section class="part">
            <h2>Runs of the last week</h2>
            <Loaded answer={totals} rows={1}>
              {(sum) => Object.keys(sum.totals).length === 0 ? <p class="quiet">None.</p> : (
                <dl class="facts">
                  {Object.entries(sum.totals).map(([name, count]) => (
                    <div key={name}>
                      <dt>{visible(countName(name))}</dt>
                      <dd>{countText(Number(count))}</dd>
                    </div>
                  ))}
                </dl>
              )}
            </Loaded>
          </section>
          <section class="card">
            <h2>Runs on</h2>
            <ul>
              {functionFilterTexts(found.filters).map((line, place) => (
                <li key={place}>{clipped(line, 600)}</li>
              ))}
            </ul>
            <details>
              <summary>Filters as JSON</summary>
              <Json value={withoutCode(found.filters)} />
            </details>
          </section>
          {found.hog && (
            <section class="part">
              <h2>Program</h2>
              <div class="code">
                <pre tabindex={0}>{visible(found.hog)}</pre>
              </div>
            </section>
          )}
          <section class="part">
            <h2>Newest log lines</h2>
            <div class="filters">
              <Select label="Level" value={level} options={LEVELS} onChange={(wanted) => ask({ level: wanted })} />
            </div>
            <Loaded answer={logs}>
              {({ results }) => (
                <ul class="plain logs">
                  {results.map((line, at) => (
                    <li key={`${line.timestamp} ${at}`}>
                      <When at={line.timestamp} zone={zone} precise /> <Badge kind={line.level.toLowerCase() === "error" ? "critical" : ""}>{line.level.toLowerCase()}</Badge> <LogText text={line.message} />
                    </li>
                  ))}
                  {results.length === 0 && <li>{level ? "No log lines have this level." : "There are no log lines."}</li>}
                </ul>
              )}
            </Loaded>
          </section>
        </>
        )
      }}
    </Loaded>
  )
}

const ADDRESSES = /(https?:\/\/[^\s'"]+)/

/** A log line in which addresses of this server, such as those of events, are links; other addresses stay text. */
function LogText({ text }: { text: string }) {
  if (text.length > 500) return <Theirs text={text} most={500} />
  return (
    <>
      {text.split(ADDRESSES).map((part, place) =>
        part.startsWith(`${window.location.origin}/`) ? (
          <a key={place} href={part}>
            {visible(part)}
          </a>
        ) : (
          <Theirs key={place} text={part} />
        ),
      )}
    </>
  )
}

/** What was compiled from the filters says nothing to people. */
function withoutCode(filters: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(filters).filter(([name]) => name !== "bytecode" && name !== "transpiled"))
}
