// Who changed what of an experiment, as sentences.

import { useGet } from "../api/queryCache"
import { lacks } from "../api/session"
import { When } from "../kit/basics"
import { Loaded } from "../kit/states"
import { clipped } from "../lib/format"
import { absolute } from "../lib/time"
import { WORDS } from "../lib/words"

interface Change {
  field?: string | null
  before?: unknown
  after?: unknown
}

const MOMENT = /^\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)$/

function said(value: unknown, zone: string): string {
  if (typeof value !== "string") return clipped(JSON.stringify(value), 120)
  return MOMENT.test(value) ? absolute(new Date(value), zone) : `“${clipped(value, 120)}”`
}

/** One change in words. */
export function changeText({ field, before, after }: Change, zone: string): string {
  if (field === "shipped_variant") return `shipped ${said(after, zone)}`
  const name = (field ?? "something").replaceAll("_", " ")
  if (after === null || after === undefined || after === "") return `removed ${name}`
  if (before === null || before === undefined || before === "") return `set ${name} to ${said(after, zone)}`
  return typeof after === "object" ? `changed ${name}` : `changed ${name} from ${said(before, zone)} to ${said(after, zone)}`
}

export function History({ project, id, zone }: { project: string; id: string; zone: string }) {
  const missing = lacks("activity_log:read")
  const log = useGet("/api/projects/{project_id}/activity_log/", missing ? null : { project_id: project }, { scope: "Experiment", item_id: id, limit: 100 })
  if (missing) return <p>{WORDS.needsScope(missing)}</p>
  return (
    <Loaded answer={log}>
      {(found) => (
        <section class="part">
          <h2>
            History <span class="quiet">({zone})</span>
          </h2>
          <ol class="history">
            {found.results.map((entry) => {
              const changes = ((entry.detail as { changes?: Change[] | null } | null)?.changes ?? []).map((change) => changeText(change, zone))
              return (
                <li key={entry.id}>
                  <When at={entry.created_at} zone={zone} />
                  <span>
                    <bdi>{entry.user ? clipped(String(entry.user.first_name || entry.user.email), 80) : "hoglab"}</bdi>{" "}
                  {changes.length ? changes.join("; ") : `${entry.activity.replaceAll("_", " ")} the experiment`}.
                  </span>
                </li>
              )
            })}
          </ol>
          {found.results.length === 0 && <p>This experiment has no history.</p>}
        </section>
      )}
    </Loaded>
  )
}
