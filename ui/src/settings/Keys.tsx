// The personal API keys of the user who is logged in.

import { useState } from "preact/hooks"
import { post, remove, type Schemas } from "../api/client"
import { invalidate, useGet } from "../api/queryCache"
import { lacks, useSession } from "../api/session"
import { Button, Copy, Name, When } from "../kit/basics"
import { Confirm, Dialog } from "../kit/dialog"
import { Field } from "../kit/forms"
import { useTitle } from "../kit/hooks"
import { Loaded, told } from "../kit/states"
import { clipped, counted } from "../lib/format"
import { WORDS } from "../lib/words"
import { type Choice, type Level, LEVELS, nounOf, OBJECTS, PRESETS, scopesOf, scopesText } from "./scopes"

type Key = Schemas["KeyOut"]
type Asked = { what: "roll" | "revoke"; key: Key }

export default function Keys({ zone }: { zone: string }) {
  useTitle("API keys")
  const [making, setMaking] = useState(false)
  const [asked, setAsked] = useState<Asked | null>(null)
  const [shown, setShown] = useState<Key | null>(null)
  const missing = lacks("personal_api_key:write")
  const keys = useGet("/api/personal_api_keys/", {})
  const projects = useProjects()
  const act = async ({ what, key }: Asked) => {
    if (what === "roll") setShown(await post("/api/personal_api_keys/{key_id}/roll/", { key_id: key.id }))
    else await remove("/api/personal_api_keys/{key_id}/", { key_id: key.id })
    invalidate("/personal_api_keys/")
  }
  return (
    <>
      <header class="page-head">
        <div class="grow">
          <h1>API keys</h1>
          <p class="lead">A key may do what you may do, but no more than its scopes allow. Its value is shown only once.</p>
        </div>
        <Button kind="primary" lacks={missing} onClick={() => setMaking(true)}>
          Create key …
        </Button>
      </header>
      {shown?.value && (
        <div class="card" role="status">
          <p>
            <strong>
              The key “<Name text={shown.label} />”
            </strong>{" "}
            – copy it now, it cannot be shown again:
          </p>
          <p class="secret">
            <code>{shown.value}</code> <Copy text={shown.value} label="key" />
          </p>
          <Button onClick={() => setShown(null)}>Hide the key</Button>
        </div>
      )}
      <Loaded answer={keys}>
        {(list) => (
          <div class="card table-card" tabindex={0} role="region" aria-label="API keys">
            <table class="list stack">
              <thead>
                <tr>
                  <th scope="col">Label</th>
                  <th scope="col">Key</th>
                  <th scope="col">What it may do</th>
                  <th scope="col">Created</th>
                  <th scope="col">Last used</th>
                  <th scope="col">Expires</th>
                  <th scope="col">
                    <span class="unseen">Actions</span>
                  </th>
                </tr>
              </thead>
              <tbody>
                {list.map((key) => (
                  <tr key={key.id}>
                    <th scope="row">
                      <Name text={key.label} />
                    </th>
                    <td data-label="Key">
                      <code>{key.mask_value}</code>
                    </td>
                    <td data-label="What it may do" class="rights">
                      {clipped(scopesText(key.scopes), 1000)}
                      <details>
                        <summary class="quiet">{counted(key.scopes.length, "scope")}</summary>
                        <code>{clipped(key.scopes.join(" "), 1000)}</code>
                      </details>
                      {key.scoped_teams && key.scoped_teams.length > 0 && (
                        <div class="quiet">
                          only in <Name text={key.scoped_teams.map((id) => projects.find((each) => each.id === id)?.name ?? `project ${id}`).join(", ")} />
                        </div>
                      )}
                    </td>
                    <td data-label="Created">
                      <When at={key.created_at} zone={zone} />
                    </td>
                    <td data-label="Last used">
                      <When at={key.last_used_at} zone={zone} />
                    </td>
                    <td data-label="Expires">
                      <When at={key.expires_at} zone={zone} />
                    </td>
                    <td>
                      <Button kind="quiet" lacks={missing} label={`Roll ${clipped(key.label, 60)}`} onClick={() => setAsked({ what: "roll", key })}>
                        Roll
                      </Button>
                      <Button kind="quiet" lacks={missing} label={`Revoke ${clipped(key.label, 60)}`} onClick={() => setAsked({ what: "revoke", key })}>
                        Revoke
                      </Button>
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </Loaded>
      {making && <NewKey onClose={() => setMaking(false)} onMade={setShown} />}
      {asked && (
        <Confirm title={`${asked.what === "roll" ? "New value for" : "Revoke"} “${clipped(asked.key.label, 60)}”`} verb={asked.what === "roll" ? "Create new value" : "Revoke"} danger act={() => act(asked)} onClose={() => setAsked(null)}>
          <p>Everything that uses its current value stops working at once{asked.what === "revoke" ? ", and sessions that were opened with it end" : ""}.</p>
        </Confirm>
      )}
    </>
  )
}

const EXPIRIES = [["", "Never"], ["30", "In 30 days"], ["90", "In 90 days"], ["365", "In a year"]] as const

function NewKey({ onClose, onMade }: { onClose: () => void; onMade: (key: Key) => void }) {
  const [label, setLabel] = useState("")
  const [days, setDays] = useState("")
  const [choice, setChoice] = useState<Choice | "*">({ experiment: "read" })
  const [only, setOnly] = useState<readonly number[] | null>(null)
  const projects = useProjects()
  const [fault, setFault] = useState<string | null>(null)
  const [busy, setBusy] = useState(false)
  const make = async (event: Event) => {
    event.preventDefault()
    setBusy(true)
    setFault(null)
    try {
      const expires = days ? { expires_at: new Date(Date.now() + Number(days) * 86_400_000).toISOString() } : {}
      onMade(await post("/api/personal_api_keys/", {}, { label, scopes: scopesOf(choice), scoped_teams: only, ...expires }))
      invalidate("/personal_api_keys/")
      onClose()
    } catch (error) {
      setFault(told(error).detail)
      setBusy(false)
    }
  }
  return (
    <Dialog title="Create key" onClose={onClose}>
      <form onSubmit={(event) => void make(event)}>
        <Field label="Label" hint="Where the key is used, so that you can recognise it.">
          {(given) => <input {...given} value={label} required maxlength={40} onInput={(event) => setLabel(event.currentTarget.value)} />}
        </Field>
        <Field label="Expires">
          {(given) => (
            <select {...given} value={days} onChange={(event) => setDays(event.currentTarget.value)}>
              {EXPIRIES.map(([key, text]) => (
                <option key={key} value={key}>
                  {text}
                </option>
              ))}
            </select>
          )}
        </Field>
        <fieldset>
          <legend>What it may do</legend>
          <p>
            {PRESETS.map(([key, text, preset]) => (
              <Button key={key} kind="quiet" onClick={() => setChoice(preset)}>
                {text}
              </Button>
            ))}
          </p>
          {choice === "*" ? (
            <p>Everything that you may do.</p>
          ) : (
            <div class="scopes">
              {OBJECTS.map((object) => (
                <label class="filter" key={object}>
                  <span>
                    {nounOf(object)} <code class="quiet">{object}</code>
                  </span>
                  <select value={choice[object] ?? "none"} onChange={(event) => setChoice({ ...choice, [object]: event.currentTarget.value as Level })}>
                    {LEVELS.map(([level, text]) => (
                      <option key={level} value={level}>
                        {text}
                      </option>
                    ))}
                  </select>
                </label>
              ))}
            </div>
          )}
        </fieldset>
        <Projects projects={projects} only={only} setOnly={setOnly} />
        {fault && (
          <p class="fault" role="alert">
            {fault}
          </p>
        )}
        <div class="buttons">
          <Button onClick={onClose}>{WORDS.cancel}</Button>
          <Button kind="primary" type="submit" disabled={busy || scopesOf(choice).length === 0 || only?.length === 0}>
            Create key
          </Button>
        </div>
      </form>
    </Dialog>
  )
}

interface Project {
  id: number
  name: string
}

/** The projects of the user who is logged in. */
function useProjects(): Project[] {
  return (useSession()?.user.organization?.projects ?? []).map((each) => ({ id: Number(each.id), name: String(each.name) }))
}

interface ProjectsProps {
  projects: Project[]
  /** The projects that the key is for; null: all, also later ones. */
  only: readonly number[] | null
  setOnly: (only: readonly number[] | null) => void
}

function Projects({ projects, only, setOnly }: ProjectsProps) {
  return (
    <fieldset>
      <legend>Where</legend>
      <label class="check">
        <input type="checkbox" checked={only === null} onChange={(event) => setOnly(event.currentTarget.checked ? null : [])} /> In all projects, including later ones
      </label>
      {only !== null &&
        projects.map(({ id, name }) => (
          <label class="check" key={id}>
            <input type="checkbox" checked={only.includes(id)} onChange={(event) => setOnly(event.currentTarget.checked ? [...only, id] : only.filter((each) => each !== id))} /> <Name text={name} />
          </label>
        ))}
    </fieldset>
  )
}
