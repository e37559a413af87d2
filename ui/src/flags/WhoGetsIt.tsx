// What one person gets of a flag, and what each condition says: as SDKs are answered, also before it is saved.

import { useEffect, useId, useState } from "preact/hooks"
import { post, type Schemas } from "../api/client"
import { lacks } from "../api/session"
import { Badge, Name } from "../kit/basics"
import { Field } from "../kit/forms"
import { useSettled } from "../kit/hooks"
import { told } from "../kit/states"
import { clipped, MISSING } from "../lib/format"
import { type Json, object } from "../lib/loose"
import { conditionText } from "../lib/rules"
import { WORDS } from "../lib/words"
import { FLAGS, type Flag } from "./model"

type Explained = Schemas["ExplanationOut"]

interface Props {
  flag: Flag | null
  /** What differs from the stored flag. */
  changes: Json
  /** Whether the flag could be saved as it is. */
  ready: boolean
  by: string
  project: string
}

export function WhoGetsIt({ flag, changes, ready, by, project }: Props) {
  const [person, setPerson] = useState("")
  const [sent, setSent] = useState("")
  const [groups, setGroups] = useState("")
  const [answer, setAnswer] = useState<Explained | null>(null)
  const [fault, setFault] = useState<string | null>(null)
  const missing = lacks("feature_flag:read") ?? lacks("person:read")
  const unsaved = Object.keys(changes).length > 0
  const properties = jsonObject(sent)
  const named = jsonObject(groups)
  const isAsked = person.trim() !== "" && ready && missing === null && properties !== null && named !== null
  // Nothing is asked before it is settled, or of a flag that is not complete.
  const question = useSettled(
    isAsked ? JSON.stringify({
      ...(unsaved || flag === null ? { flag: { ...changes, ...(flag && { id: flag.id }) } } : { key: flag.key }),
      distinct_id: person.trim(),
      ...(properties && { person_properties: properties }),
      ...(named && { groups: named }),
    }) : "",
    250,
  )
  const asks = isAsked && question !== ""
  useEffect(() => {
    if (question === "") return undefined
    let over = false
    post(`${FLAGS}explain/`, { project_id: project }, JSON.parse(question)).then(
      (found) => {
        if (over) return
        setAnswer(found)
        setFault(null)
      },
      (error: unknown) => over || setFault(told(error).detail),
    )
    return () => {
      over = true
    }
  }, [question, flag?.version])
  if (missing) return <aside class="card who"><h2>Try a person</h2><p>{WORDS.needsScope(missing)}</p></aside>
  return (
    <aside class="card who" aria-label="Try a person">
      <h2>Try a person</h2>
      <People project={project} value={person} onInput={setPerson} />
      <details>
        <summary>Properties and groups of the request</summary>
        <Field label="Properties" hint="A JSON object; they count before stored ones." error={properties === null ? "This is not a JSON object." : null}>
          {(given) => <textarea {...given} rows={2} spellcheck={false} value={sent} onInput={(event) => setSent(event.currentTarget.value)} />}
        </Field>
        <Field label="Groups" hint={'Such as {"company": "acme"}.'} error={named === null ? "This is not a JSON object." : null}>
          {(given) => <textarea {...given} rows={1} spellcheck={false} value={groups} onInput={(event) => setGroups(event.currentTarget.value)} />}
        </Field>
      </details>
      {by !== "" && named !== null && Object.keys(named ?? {}).length === 0 && <p class="quiet">This flag decides by groups: name the group of the person above.</p>}
      {!ready && <p class="quiet">The flag has to be complete before it can be tried.</p>}
      {person.trim() === "" && <p class="quiet">Type a distinct id to see what this person gets and why{unsaved ? ", with your changes" : ""}.</p>}
      {asks && fault && <p class="fault" role="alert">{fault}</p>}
      {asks && answer && !fault && <Answer answer={answer} unsaved={unsaved} />}
    </aside>
  )
}

/** A JSON object that was typed; nothing typed: none; null: it is not one. */
function jsonObject(text: string): Json | null | undefined {
  if (text.trim() === "") return undefined
  try {
    const found: unknown = JSON.parse(text)
    return typeof found === "object" && found !== null && !Array.isArray(found) ? object(found) : null
  } catch {
    return null
  }
}

function People({ value, onInput }: { project: string; value: string; onInput: (text: string) => void }) {
  const id = useId()
  return (
    <div class="field">
      <label for={id}>Distinct id</label>
      <input id={id} value={value} autocomplete="off" spellcheck={false} maxlength={200} onInput={(event) => onInput(event.currentTarget.value)} />
    </div>
  )
}

const percent = (share: number) => `${Number(share.toFixed(2))}%`

function Answer({ answer, unsaved }: { answer: Explained; unsaved: boolean }) {
  const gets = answer.variant ?? (answer.enabled ? "true" : "false")
  return (
    <div role="status">
      <p class="gets">
        Gets <strong><code><Name text={gets} /></code></strong> {unsaved && <Badge>with your changes</Badge>}
      </p>
      <p class="quiet">
        {clipped(answer.reason.description, 200)}. {answer.person.known ? "The person is known." : "Nobody with this id is known; only what is sent counts."}
      </p>
      {answer.payload !== null && <p>Payload: <code>{clipped(answer.payload, 300)}</code></p>}
      {answer.holdout && (
        <p>
          {answer.holdout.matches ? "✓ Held out" : "✗ Not held out"}: bucket {answer.holdout.bucket === null ? MISSING : percent(answer.holdout.bucket)}, holdout {percent(answer.holdout.percentage)}.
        </p>
      )}
      <ol class="explained">
        {answer.conditions.map((condition) => (
          <li key={condition.index}>
            <strong>
              {condition.matches ? "✓" : "✗"} Condition {condition.index + 1} {condition.matches ? "matches" : "does not match"}
            </strong>
            {condition.skipped && <p class="quiet">It is skipped: the request names no group or device of the kind that it decides by.</p>}
            <ul>
              {condition.properties.map((property, at) => (
                <li key={at}>
                  {property.matches ? "✓" : "✗"} {clipped(conditionText({ ...property }), 200)}
                  {property.type !== "cohort" && <span class="quiet"> · is {property.actual === null ? "not there" : <code>{clipped(JSON.stringify(property.actual), 120)}</code>}</span>}
                  {property.problem && <span class="fault"> {clipped(property.problem, 200)}</span>}
                </li>
              ))}
              <li>
                {condition.rollout.matches ? "✓" : "✗"} rollout {percent(condition.rollout.percentage)}
                <span class="quiet"> · bucket {condition.rollout.bucket === null ? MISSING : percent(condition.rollout.bucket)}</span>
              </li>
            </ul>
          </li>
        ))}
      </ol>
      {answer.variant_bucket !== null && <p class="quiet">Place among the variants: {percent(answer.variant_bucket)}.</p>}
      {answer.depends_on.length > 0 && <p class="quiet">Depends on {answer.depends_on.map(({ key, value }) => `${clipped(key, 60)} = ${String(value)}`).join(", ")}.</p>}
    </div>
  )
}
