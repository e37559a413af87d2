// Who changed what of a flag, and the way back to an earlier state.

import { useState } from "preact/hooks"
import { get, ifStillSo, patch, type Schemas } from "../api/client"
import { invalidate, useGet } from "../api/queryCache"
import { lacks } from "../api/session"
import { Button, When } from "../kit/basics"
import { Differences } from "../kit/differences"
import { Confirm } from "../kit/dialog"
import { makerText } from "../kit/lists"
import { Loaded } from "../kit/states"
import { toast } from "../kit/toasts"
import { clipped } from "../lib/format"
import { type Json, list, object } from "../lib/loose"
import { ask } from "../lib/router"
import { WORDS } from "../lib/words"
import { differencesOf, draftOf } from "./draft"
import { FLAG, type Flag } from "./model"

const ACTIVITY = "/api/projects/{project_id}/feature_flags/{flag_id}/activity/"
const PAGE = 20
// What a way back restores. Deleting, archiving and experiments have their own buttons.
const RESTORED = ["key", "name", "filters", "active", "tags", "ensure_experience_continuity", "evaluation_contexts", "evaluation_runtime", "bucketing_identifier"]

type Entry = Schemas["ActivityOut"]

interface Props {
  flag: Flag
  names: ReadonlyMap<string, string>
  project: string
  zone: string
}

export function History({ flag, names, project, zone }: Props) {
  const missing = lacks("activity_log:read")
  const [limit, setLimit] = useState(PAGE)
  const [chosen, setChosen] = useState<{ entry: Entry; fields: Json } | null>(null)
  const log = useGet(ACTIVITY, missing ? null : { project_id: project, flag_id: flag.id }, { limit })
  if (missing) return <p>{WORDS.needsScope(missing)}</p>
  return (
    <Loaded answer={log}>
      {({ results, total_count: count }) => (
        <section class="part">
          <h2>
            History <span class="quiet">({zone})</span>
          </h2>
          <ol class="history">
            {results.map((entry, at) => (
              <li key={entry.id}>
                <When at={entry.created_at} zone={zone} />
                <div>
                  <p>
                    <bdi>{entry.user ? clipped(makerText(entry.user), 80) : "hoglab"}</bdi> {entry.activity.replaceAll("_", " ")} it.
                  </p>
                  <Changes entry={entry} flag={flag} names={names} />
                  {at > 0 && (
                    <Button kind="quiet" lacks={lacks("feature_flag:write")} onClick={() => setChosen({ entry, fields: stateAfter(flag, results.slice(0, at)) })}>
                      Go back to this state …
                    </Button>
                  )}
                </div>
              </li>
            ))}
          </ol>
          {count > results.length && limit < 100 && <Button onClick={() => setLimit(Math.min(100, limit + 4 * PAGE))}>Show more</Button>}
          {chosen && (
            <Confirm title="Go back to an earlier state" verb="Go back" act={() => restore(flag, project, chosen.fields)} onClose={() => setChosen(null)}>
              <p>
                The flag becomes as it was <When at={chosen.entry.created_at} zone={zone} />. This is a new version; nothing of the history is lost.
              </p>
              <Differences lines={differencesOf(draftOf(flag), draftOf({ ...flag, ...chosen.fields } as Flag), names)} before="Now" after="Then" />
              {chosen.fields.active !== flag.active && <p>It is switched {chosen.fields.active ? "on" : "off"}.</p>}
            </Confirm>
          )}
        </section>
      )}
    </Loaded>
  )
}

function changesOf(entry: Entry): Json[] {
  return list(object(entry.detail).changes)
}

/** The fields of a flag before some changes, the newest first. */
export function stateAfter(flag: Flag, newer: readonly Entry[]): Json {
  const fields: Json = Object.fromEntries(RESTORED.map((name) => [name, (flag as unknown as Json)[name]]))
  for (const entry of newer) for (const { field, before } of changesOf(entry)) if (typeof field === "string" && RESTORED.includes(field)) fields[field] = before
  return fields
}

async function restore(flag: Flag, project: string, fields: Json): Promise<void> {
  const parts = { project_id: project, flag_id: flag.id }
  const now = await get(FLAG, parts)
  if (now.version !== flag.version) throw new Error("Somebody changed the flag meanwhile. Close this, and look at the history again.")
  // Filters are merged by their keys: those that there were not are taken away.
  const then = object(fields.filters)
  const gone = Object.fromEntries(Object.keys(flag.filters).filter((key) => !(key in then)).map((key) => [key, null]))
  const payloads = flag.has_encrypted_payloads ? { payloads: flag.filters.payloads } : {}
  await patch(FLAG, parts, { ...fields, filters: { ...gone, ...then, ...payloads } }, ifStillSo(now))
  invalidate("/feature_flags/")
  toast("The flag is as it was.")
  ask({ tab: null })
}

function Changes({ entry, flag, names }: { entry: Entry; flag: Flag; names: ReadonlyMap<string, string> }) {
  const changes = changesOf(entry)
  const side = (which: "before" | "after") => ({ ...flag, ...Object.fromEntries(changes.map((change) => [String(change.field), change[which]])) }) as Flag
  const shown = changes.filter(({ field }) => RESTORED.includes(String(field)))
  if (shown.length === 0) return null
  const lines = differencesOf(draftOf(side("before")), draftOf(side("after")), names)
  const active = changes.find(({ field }) => field === "active")
  return (
    <>
      {active && <p>Switched {active.after === true ? "on" : "off"}.</p>}
      {lines.length > 0 && <Differences lines={lines} />}
    </>
  )
}
