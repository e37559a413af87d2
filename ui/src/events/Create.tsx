// What can be created from an event: a shared metric that counts it, or a function that sends it on.

import { useState } from "preact/hooks"
import { ApiError, post } from "../api/client"
import { invalidate } from "../api/queryCache"
import { lacks } from "../api/session"
import { Button } from "../kit/basics"
import { Dialog } from "../kit/dialog"
import { Field } from "../kit/forms"
import { told } from "../kit/states"
import { toast } from "../kit/toasts"
import { clipped } from "../lib/format"
import { go, pathOf } from "../lib/router"
import { WORDS } from "../lib/words"
import { functionOf, measures, metricOf } from "./payloads"
import type { Event } from "./model"

interface Props {
  event: Event
  project: string
}

/** The buttons, for an event that is open. */
export function Create({ event, project }: Props) {
  const [making, setMaking] = useState<"metric" | "function" | null>(null)
  const close = () => setMaking(null)
  return (
    <>
      <Button kind="quiet" lacks={lacks("experiment_saved_metric:write")} onClick={() => setMaking("metric")}>
        Create metric …
      </Button>
      <Button kind="quiet" lacks={lacks("hog_function:write")} onClick={() => setMaking("function")}>
        Create function …
      </Button>
      {making === "metric" && <MetricDialog event={event} project={project} onClose={close} />}
      {making === "function" && <FunctionDialog event={event} project={project} onClose={close} />}
    </>
  )
}

interface DialogProps extends Props {
  onClose: () => void
}

/** What a form does when it is sent, and what the server had against it. */
function useSending(make: () => Promise<void>, onClose: () => void) {
  const [busy, setBusy] = useState(false)
  const [fault, setFault] = useState<{ attr: string; text: string } | null>(null)
  const submit = async (event: SubmitEvent) => {
    event.preventDefault()
    setBusy(true)
    setFault(null)
    try {
      await make()
      onClose()
    } catch (error) {
      setFault({ attr: error instanceof ApiError ? (error.attr ?? "") : "", text: told(error).detail })
      setBusy(false)
    }
  }
  return { busy, fault, submit: (event: SubmitEvent) => void submit(event) }
}

function MetricDialog({ event, project, onClose }: DialogProps) {
  const choices = measures(event)
  const [name, setName] = useState(event.event.slice(0, 200))
  const [measure, setMeasure] = useState(choices[0]?.key ?? "")
  const [goal, setGoal] = useState("increase")
  const { busy, fault, submit } = useSending(async () => {
    const query = metricOf(event, choices.find((each) => each.key === measure), name, goal)
    await post("/api/projects/{project_id}/experiment_saved_metrics/", { project_id: project }, { name, query })
    invalidate("/experiment_saved_metrics/")
    toast(`Created the shared metric “${clipped(name, 60)}”. Every experiment can use it.`)
  }, onClose)
  return (
    <Dialog title="Create a metric from this event" onClose={onClose}>
      <form onSubmit={submit}>
        <Field label="Name" error={fault?.text}>
          {(given) => <input {...given} value={name} required maxlength={400} onInput={(change) => setName(change.currentTarget.value)} />}
        </Field>
        <Field label="What counts">
          {(given) => (
            <select {...given} value={measure} onChange={(change) => setMeasure(change.currentTarget.value)}>
              {choices.map(({ key, text }) => (
                <option key={key} value={key}>
                  {clipped(text, 100)}
                </option>
              ))}
            </select>
          )}
        </Field>
        <Field label="Better is">
          {(given) => (
            <select {...given} value={goal} onChange={(change) => setGoal(change.currentTarget.value)}>
              <option value="increase">more</option>
              <option value="decrease">less</option>
            </select>
          )}
        </Field>
        <Send busy={busy} onClose={onClose} verb="Create metric" />
      </form>
    </Dialog>
  )
}

function FunctionDialog({ event, project, onClose }: DialogProps) {
  const [name, setName] = useState(`On ${event.event.slice(0, 200)}`)
  const [url, setUrl] = useState("")
  const [enabled, setEnabled] = useState(false)
  const { busy, fault, submit } = useSending(async () => {
    const made = await post("/api/projects/{project_id}/hog_functions/", { project_id: project }, functionOf(event, name, url, enabled))
    go(pathOf("p", project, "functions", made.id))
  }, onClose)
  const ofUrl = fault?.attr.startsWith("inputs")
  return (
    <Dialog title="Create a function from this event" onClose={onClose}>
      <form onSubmit={submit}>
        <p>The function is a webhook: it sends each event of this name as JSON, and tries again for a day while the receiver fails.</p>
        <Field label="Name" error={ofUrl ? null : fault?.text}>
          {(given) => <input {...given} value={name} required maxlength={400} onInput={(change) => setName(change.currentTarget.value)} />}
        </Field>
        <Field label="Address" hint="Where the events are sent with POST." error={ofUrl ? fault?.text : null}>
          {(given) => <input {...given} type="url" value={url} required placeholder="https://" onInput={(change) => setUrl(change.currentTarget.value)} />}
        </Field>
        <label class="check">
          <input type="checkbox" checked={enabled} onChange={(change) => setEnabled(change.currentTarget.checked)} /> Switch on immediately
        </label>
        <Send busy={busy} onClose={onClose} verb="Create function" />
      </form>
    </Dialog>
  )
}

function Send({ busy, onClose, verb }: { busy: boolean; onClose: () => void; verb: string }) {
  return (
    <div class="buttons">
      <Button onClick={onClose}>{WORDS.cancel}</Button>
      <Button kind="primary" type="submit" disabled={busy}>
        {verb}
      </Button>
    </div>
  )
}
