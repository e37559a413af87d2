// The form of a flag: nothing is sent before what changes was shown.

import { useEffect, useRef, useState } from "preact/hooks"
import { ApiError, get, ifStillSo, patch, post } from "../api/client"
import { invalidate, useGet } from "../api/queryCache"
import { lacks } from "../api/session"
import { Button } from "../kit/basics"
import { Field } from "../kit/forms"
import { told } from "../kit/states"
import { toast } from "../kit/toasts"
import { clipped } from "../lib/format"
import { ask, go, pathOf } from "../lib/router"
import { WORDS } from "../lib/words"
import { Conditions } from "./Conditions"
import { changesOf, type Draft, draftOf, faultOf, NEW, problemsOf } from "./draft"
import { FLAG, type Flag, FLAGS } from "./model"
import { Conflict, SavingDialog } from "./Saving"
import { Variants } from "./Variants"
import { WhoGetsIt } from "./WhoGetsIt"

const EDITED_HERE = ["name", "key", "tags"]

interface Props {
  /** The flag as it is stored; null: a new one. */
  flag: Flag | null
  names: ReadonlyMap<string, string>
  project: string
}

export function Editor({ flag, names, project }: Props) {
  const [base, setBase] = useState(flag)
  const [draft, setDraft] = useState<Draft>(() => (flag ? draftOf(flag) : NEW))
  const [shown, setShown] = useState(false)
  const [saving, setSaving] = useState(false)
  const [refused, setRefused] = useState<[string, string] | null>(null)
  const [theirs, setTheirs] = useState<Flag | null>(null)
  const types = useGet("/api/projects/{project_id}/groups_types/", lacks("group:read") === null ? { project_id: project } : null)
  const errors = useRef<HTMLDivElement>(null)
  const problems = problemsOf(draft)
  const changes = changesOf(base, draft)
  const isChanged = Object.keys(changes).length > 0
  const change = (changed: Partial<Draft>) => {
    setDraft((now) => ({ ...now, ...changed }))
    setRefused(null)
  }
  const fault = (place: string) => (refused?.[0] === place ? refused[1] : shown ? (problems[place] ?? null) : null)
  useEffect(() => {
    if (!isChanged) return undefined
    const stay = (event: BeforeUnloadEvent) => event.preventDefault()
    window.addEventListener("beforeunload", stay)
    return () => window.removeEventListener("beforeunload", stay)
  }, [isChanged])
  const send = async () => {
    try {
      if (base === null) {
        const made = await post(FLAGS, { project_id: project }, changes)
        invalidate("/feature_flags/")
        toast(`Created ${clipped(made.key, 60)}.`)
        go(pathOf("p", project, "flags", made.id))
        return
      }
      await sendChange(base)
      invalidate(`/feature_flags/`)
      toast(`Saved ${clipped(draft.key, 60)}.`)
      ask({ edit: null })
    } catch (error) {
      if (error instanceof ApiError && error.status === 412) return
      setRefused(error instanceof ApiError && error.status === 400 ? faultOf(error.attr, told(error).detail) : ["", told(error).detail])
    }
  }
  // A flag that only was asked for meanwhile is still the same; one with another version is not.
  const sendChange = async (as: Flag): Promise<void> => {
    const parts = { project_id: project, flag_id: as.id }
    try {
      await patch(FLAG, parts, changes, ifStillSo(as))
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 412) throw error
      const now = await get(FLAG, parts)
      if (now.version === as.version) return sendChange(now)
      setTheirs(now)
      throw error
    }
  }
  const submit = (event: Event) => {
    event.preventDefault()
    setShown(true)
    if (Object.keys(problems).length > 0) errors.current?.focus()
    else if (base === null) void send()
    else if (isChanged) setSaving(true)
  }
  const leave = () => (flag ? ask({ edit: null }) : go(pathOf("p", project, "flags")))
  const elsewhere = refused && !Object.keys(problems).includes(refused[0]) && !EDITED_HERE.includes(refused[0]) && !/^(groups|multivariate|payloads)/.test(refused[0]) ? refused[1] : null
  return (
    <form class="flag-page" onSubmit={submit} novalidate>
      <div class="flag-main">
        {theirs && base && (
          <Conflict
            base={base}
            theirs={theirs}
            names={names}
            keep={() => {
              setBase(theirs)
              setTheirs(null)
            }}
            drop={() => {
              invalidate("/feature_flags/")
              ask({ edit: null })
            }}
          />
        )}
        <div ref={errors} tabindex={-1} class="summary">
          {(elsewhere || (shown && Object.keys(problems).length > 0)) && (
            <p class="failure" role="alert">
              {elsewhere ?? `This cannot be saved yet. ${Object.values(problems).join(" ")}`}
            </p>
          )}
        </div>
        <section class="card">
          <Field label="Key" error={fault("key")} hint={flag ? "Code asks for the flag by this key." : "Code asks for the flag by this key: letters, digits, hyphens and underscores."}>
            {(given) => <input {...given} value={draft.key} autocomplete="off" spellcheck={false} maxlength={400} onInput={(event) => change({ key: event.currentTarget.value })} />}
          </Field>
          <Field label="Name" error={fault("name")} hint="What the flag is for, in words.">
            {(given) => <input {...given} value={draft.name} autocomplete="off" onInput={(event) => change({ name: event.currentTarget.value })} />}
          </Field>
          <Field label="Tags" error={fault("tags")} hint="Several by commas.">
            {(given) => <input {...given} value={draft.tags} autocomplete="off" onInput={(event) => change({ tags: event.currentTarget.value })} />}
          </Field>
          {(types.value ?? []).length > 0 && (
            <Field label="Decides by" hint="By groups, all people of a company, say, get the same.">
              {(given) => (
                <select {...given} value={draft.by} onChange={(event) => change({ by: event.currentTarget.value })}>
                  <option value="">people</option>
                  {(types.value ?? []).map((type) => (
                    <option key={type.group_type_index} value={String(type.group_type_index)}>
                      {clipped(type.group_type, 60)}
                    </option>
                  ))}
                </select>
              )}
            </Field>
          )}
          <label class="check">
            <input type="checkbox" checked={draft.persists} onChange={(event) => change({ persists: event.currentTarget.checked })} /> People keep what they got when they log in
          </label>
        </section>
        <Conditions draft={draft} change={change} names={names} fault={fault} project={project} />
        <Variants draft={draft} change={change} fault={fault} encrypted={flag?.has_encrypted_payloads === true} />
        <div class="buttons save-bar">
          <Button onClick={leave}>{WORDS.cancel}</Button>
          <Button kind="primary" type="submit" disabled={base !== null && !isChanged} lacks={lacks("feature_flag:write")}>
            {base === null ? "Create flag" : "Review and save …"}
          </Button>
        </div>
      </div>
      <WhoGetsIt flag={base} changes={changes} ready={Object.keys(problems).length === 0} by={draft.by} project={project} />
      {saving && base && <SavingDialog flag={base} draft={draft} names={names} save={send} onClose={() => setSaving(false)} />}
    </form>
  )
}
