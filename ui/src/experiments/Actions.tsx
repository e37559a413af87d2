// The buttons of an experiment's state, each with what will happen before it does.

import { useState } from "preact/hooks"
import { post, type Schemas } from "../api/client"
import { invalidate } from "../api/queryCache"
import { lacks } from "../api/session"
import { Button, Link, Menu } from "../kit/basics"
import { Confirm } from "../kit/dialog"
import { Field } from "../kit/forms"
import { toast } from "../kit/toasts"
import { visible } from "../lib/format"
import { go, pathOf } from "../lib/router"
import { primaryAction } from "./decision"
import { LaunchChecks } from "./LaunchChecks"
import { ACTION_WORDS, type Action, actionsOf, CONCLUSION_WORDS, consequences } from "./lifecycle"
import type { Results } from "./reading"
import { Shipping } from "./Shipping"

interface Props {
  experiment: Schemas["ExperimentOut"]
  results: Results | null
  project: string
}

const SHOWN = 2

export function Actions({ experiment, results, project }: Props) {
  const [open, setOpen] = useState<Action | null>(null)
  const primary = primaryAction(experiment, results?.verdict ?? null, results?.statistics.baseline ?? null)
  const allowed = actionsOf(experiment)
  const actions = primary === null ? allowed : [primary, ...allowed.filter((action) => action !== primary)]
  const missing = lacks("experiment:write")
  const button = (action: Action) => (
    <Button key={action} kind={action === primary ? "primary" : "plain"} lacks={missing} onClick={() => setOpen(action)}>
      {ACTION_WORDS[action]} …
    </Button>
  )
  return (
    <div class="actions">
      {actions.length > SHOWN && (
        <Menu label="More">{actions.slice(SHOWN).map(button)}</Menu>
      )}
      {!experiment.archived && missing === null && (
        <Link class="button" to={pathOf("p", project, "experiments", experiment.id, "edit")}>
          Edit
        </Link>
      )}
      {actions.slice(0, SHOWN).map(button).reverse()}
      {open && <ActionDialog action={open} experiment={experiment} results={results} project={project} onClose={() => setOpen(null)} />}
    </div>
  )
}

interface DialogProps extends Props {
  action: Action
  onClose: () => void
}

export function ActionDialog({ action, experiment, results, project, onClose }: DialogProps) {
  const totals = results?.exposures?.total_exposures ?? {}
  const [variant, setVariant] = useState<string | null>(null)
  const [everyone, setEveryone] = useState(false)
  const [conclusion, setConclusion] = useState("")
  const [comment, setComment] = useState("")
  const [mayLaunch, setMayLaunch] = useState(false)
  const people = results?.exposures ? Object.values(totals).reduce((sum, count) => sum + count, 0) : null
  const parts = { project_id: project, experiment_id: experiment.id }
  const shipping = action === "ship_variant"
  const ending = action === "end" || shipping
  const act = async () => {
    const concluded = { ...(conclusion && { conclusion }), ...(comment.trim() && { conclusion_comment: comment.trim() }) }
    const body = shipping ? { variant_key: variant, release_to_everyone: everyone, ...concluded } : action === "end" ? concluded : {}
    const path = `/api/projects/{project_id}/experiments/{experiment_id}/${action}/` as "/api/projects/{project_id}/experiments/{experiment_id}/launch/"
    const answer = await post(path, parts, body)
    invalidate("/experiments/")
    invalidate("/activity_log/")
    toast(`${ACTION_WORDS[action]}: done.`)
    if (action === "duplicate") go(pathOf("p", project, "experiments", answer.id))
  }
  const name = visible(experiment.name.slice(0, 60))
  return (
    <Confirm
      title={`${ACTION_WORDS[action]} “${name}”`}
      verb={ACTION_WORDS[action]}
      danger={action === "reset" || shipping}
      typed={action === "reset" ? (experiment.feature_flag_key ?? undefined) : undefined}
      ready={shipping ? variant !== null : action !== "launch" || mayLaunch}
      act={act}
      onClose={onClose}
    >
      {ending && results?.verdict && (
        <blockquote class={results.verdict.withholds_decisions ? "verdict-said fault" : "verdict-said"}>
          <strong>{visible(results.verdict.headline)}</strong> {visible(results.verdict.next_action.text)}
        </blockquote>
      )}
      {shipping ? (
        <Shipping experiment={experiment} results={results} totals={totals} variant={variant} setVariant={setVariant} everyone={everyone} setEveryone={setEveryone} />
      ) : (
        <ul>
          {consequences(action, experiment, people).map((line) => (
            <li key={line}>{visible(line)}</li>
          ))}
        </ul>
      )}
      {action === "launch" && <LaunchChecks parts={parts} onReady={setMayLaunch} />}
      {ending && (
        <>
          <Field label="Conclusion">
            {(given) => (
              <select {...given} value={conclusion} onChange={(event) => setConclusion(event.currentTarget.value)}>
                <option value="">No conclusion</option>
                {Object.entries(CONCLUSION_WORDS).map(([key, text]) => (
                  <option key={key} value={key}>
                    {text}
                  </option>
                ))}
              </select>
            )}
          </Field>
          <Field label="Comment" hint="What did you learn, and why do you decide so? Readers of the experiment see it later.">
            {(given) => <textarea {...given} rows={3} maxlength={4000} value={comment} onInput={(event) => setComment(event.currentTarget.value)} />}
          </Field>
        </>
      )}
    </Confirm>
  )
}
