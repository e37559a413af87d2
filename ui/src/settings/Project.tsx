// A project: its name, time zone, internal accounts, token and secret key.

import { useState } from "preact/hooks"
import { ApiError, patch, type Schemas } from "../api/client"
import { invalidate, useGet } from "../api/queryCache"
import { begin, lacks } from "../api/session"
import { Button, Copy } from "../kit/basics"
import { Confirm } from "../kit/dialog"
import { Field } from "../kit/forms"
import { useTitle } from "../kit/hooks"
import { Loaded, told } from "../kit/states"
import { toast } from "../kit/toasts"
import { visible } from "../lib/format"
import { list } from "../lib/loose"
import { conditionTexts } from "../lib/conditions"

type Project = Schemas["ProjectOut"]

export default function ProjectSettings({ project }: { project: string }) {
  useTitle("Project settings")
  const found = useGet("/api/projects/{project_id}/", { project_id: project })
  return (
    <>
      <header class="page-head">
        <h1>Project settings</h1>
      </header>
      <Loaded answer={found}>
        {(value) => (
          <div class="two">
            <General key={value.updated_at} found={value} />
            <div>
              <section class="card">
                <h2>Project token</h2>
                <p>Public: SDKs in browsers and apps carry it. It can only send events and ask for flags.</p>
                <p class="secret">
                  <code>{value.api_token}</code> <Copy text={value.api_token} label="project token" />
                </p>
              </section>
              <Secret project={project} />
            </div>
          </div>
        )}
      </Loaded>
    </>
  )
}

function General({ found }: { found: Project }) {
  const [name, setName] = useState(found.name)
  const [timezone, setTimezone] = useState(found.timezone)
  const [filters, setFilters] = useState(() => JSON.stringify(found.test_account_filters, null, 2))
  const accounts = conditionTexts(list(parsedOr(filters)))
  const [fault, setFault] = useState<{ attr: string; text: string } | null>(null)
  const [busy, setBusy] = useState(false)
  const save = async (event: Event) => {
    event.preventDefault()
    setFault(null)
    let parsed: unknown
    try {
      parsed = JSON.parse(filters)
    } catch {
      setFault({ attr: "test_account_filters", text: "This is not valid JSON. Correct it, or enter [] to count everybody." })
      return
    }
    setBusy(true)
    try {
      await patch("/api/projects/{project_id}/", { project_id: found.id }, { name, timezone, test_account_filters: parsed })
      toast("Saved.")
      invalidate(`/api/projects/${found.id}/`)
      await begin()
    } catch (error) {
      setFault({ attr: error instanceof ApiError ? (error.attr ?? "") : "", text: told(error).detail })
    } finally {
      setBusy(false)
    }
  }
  const at = (attr: string) => (fault?.attr.startsWith(attr) ? fault.text : null)
  const known = ["name", "timezone", "test_account_filters"].some((attr) => fault?.attr.startsWith(attr))
  return (
    <form class="card" onSubmit={(event) => void save(event)}>
      <h2>General</h2>
      {fault && !known && (
        <p class="fault" role="alert">
          {fault.text}
        </p>
      )}
      <Field label="Name" error={at("name")}>
        {(given) => <input {...given} value={name} required maxlength={200} onInput={(event) => setName(event.currentTarget.value)} />}
      </Field>
      <Field label="Time zone" error={at("timezone")} hint="Days in results are days in this zone.">
        {(given) => (
          <>
            <input {...given} value={timezone} list="zones" required onInput={(event) => setTimezone(event.currentTarget.value)} />
            <datalist id="zones">
              {Intl.supportedValuesOf("timeZone").map((zone) => (
                <option key={zone} value={zone} />
              ))}
            </datalist>
          </>
        )}
      </Field>
      <h3>Internal and test accounts</h3>
      <p>{accounts.length ? "Experiments and functions that leave out internal and test accounts count only events where" : "No filters are set: everybody counts."}</p>
      {accounts.length > 0 && (
        <ul>
          {accounts.map((line, place) => (
            <li key={place}>{visible(line)}</li>
          ))}
        </ul>
      )}
      <details open={at("test_account_filters") !== null}>
        <summary>Edit the filters as JSON</summary>
        <Field label="Filters" error={at("test_account_filters")} hint="A list of property filters, as the API takes them. All of them must hold.">
          {(given) => <textarea {...given} rows={6} spellcheck={false} value={filters} onInput={(event) => setFilters(event.currentTarget.value)} />}
        </Field>
      </details>
      <Button kind="primary" type="submit" disabled={busy} lacks={lacks("project:write")}>
        Save
      </Button>
    </form>
  )
}

/** The list that a text holds as JSON; empty while it is not valid. */
function parsedOr(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return []
  }
}

function Secret({ project }: { project: string }) {
  const [asked, setAsked] = useState<"roll" | "delete" | null>(null)
  const [shown, setShown] = useState<string | null>(null)
  const missing = lacks("project:write")
  const roll = async () => {
    const made = await patch("/api/projects/{project_id}/rotate_secret_token/", { project_id: project }, {})
    setShown(made.secret_api_token)
  }
  const forgetBackup = async () => {
    await patch("/api/projects/{project_id}/delete_secret_token_backup/", { project_id: project }, {})
    toast("The previous key no longer works.")
  }
  return (
    <section class="card">
      <h2>Secret key</h2>
      <p>Servers read flags with it, to evaluate them locally. It is shown only once. The previous key works until you remove it.</p>
      {shown && (
        <p class="secret" role="status">
          <code>{shown}</code> <Copy text={shown} label="secret key" /> <span class="quiet">Shown only now.</span>
        </p>
      )}
      <div class="buttons">
        <Button lacks={missing} onClick={() => setAsked("delete")}>
          Remove the previous key …
        </Button>
        <Button lacks={missing} onClick={() => setAsked("roll")}>
          Create key …
        </Button>
      </div>
      {asked === "roll" && (
        <Confirm title="Create a secret key" verb="Create key" act={roll} onClose={() => setAsked(null)}>
          <p>Servers can use the current key until you remove it. The key before the current one stops working now.</p>
        </Confirm>
      )}
      {asked === "delete" && (
        <Confirm title="Remove the previous key" verb="Remove" danger act={forgetBackup} onClose={() => setAsked(null)}>
          <p>Servers that still use the previous key get no flags any more.</p>
        </Confirm>
      )}
    </section>
  )
}
