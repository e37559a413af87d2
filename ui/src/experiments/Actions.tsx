// The buttons of an experiment's state, each with what will happen before it does.

import { useId, useState } from "preact/hooks"
import { post, type Schemas } from "../api/client"
import { invalidate } from "../api/queryCache"
import { lacks } from "../api/session"
import { Button } from "../kit/basics"
import { Confirm } from "../kit/dialog"
import { toast } from "../kit/toasts"
import { counted, visible } from "../lib/format"
import { go, pathOf } from "../lib/router"
import { ruleTexts } from "../lib/rules"
import { variantsOf } from "./definition"
import { ACTION_WORDS, type Action, actionsOf, consequences, firstOther, shipped, switching } from "./lifecycle"
import type { Results } from "./reading"

interface Props {
  experiment: Schemas["ExperimentOut"]
  results: Results | null
  project: string
}

const ASKS: ReadonlySet<Action> = new Set(["launch", "pause", "resume", "freeze_exposure", "unfreeze_exposure", "end", "ship_variant", "archive", "unarchive", "duplicate", "reset"])
const SHOWN = 2

export function Actions({ experiment, results, project }: Props) {
  const [open, setOpen] = useState<Action | null>(null)
  const actions = actionsOf(experiment)
  const missing = lacks("experiment:write")
  const button = (action: Action, at: number) => (
    <Button key={action} kind={at === 0 ? "primary" : "plain"} lacks={missing} onClick={() => setOpen(action)}>
      {ACTION_WORDS[action]}
      {ASKS.has(action) ? " …" : ""}
    </Button>
  )
  return (
    <div class="actions">
      {actions.length > SHOWN && (
        <details class="menu">
          <summary class="button">
            More <span aria-hidden="true">▾</span>
          </summary>
          <div class="menu-items">{actions.slice(SHOWN).map((action) => button(action, 1))}</div>
        </details>
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

const CONCLUSIONS = [["", "Not said"], ["won", "Won"], ["lost", "Lost"], ["inconclusive", "Inconclusive"], ["stopped_early", "Stopped early"], ["invalid", "Invalid"]] as const

export function ActionDialog({ action, experiment, results, project, onClose }: DialogProps) {
  const totals = results?.exposures?.total_exposures ?? {}
  const [variant, setVariant] = useState(() => firstOther(experiment, results?.verdict?.next_action.variant))
  const [everyone, setEveryone] = useState(false)
  const [conclusion, setConclusion] = useState("")
  const people = results?.exposures ? Object.values(totals).reduce((sum, count) => sum + count, 0) : null
  const parts = { project_id: project, experiment_id: experiment.id }
  const ending = action === "end" || action === "ship_variant"
  const act = async () => {
    const concluded = conclusion ? { conclusion } : {}
    const body = action === "ship_variant" ? { variant_key: variant, release_to_everyone: everyone, ...concluded } : action === "end" ? concluded : {}
    const path = `/api/projects/{project_id}/experiments/{experiment_id}/${action}/` as "/api/projects/{project_id}/experiments/{experiment_id}/launch/"
    const made = await post(path, parts, body)
    invalidate("/experiments/")
    toast(`${ACTION_WORDS[action]}: done.`)
    if (action === "duplicate") go(pathOf("p", project, "experiments", made.id))
  }
  const name = visible(experiment.name.slice(0, 60))
  return (
    <Confirm title={`${ACTION_WORDS[action]} “${name}”`} verb={ACTION_WORDS[action]} danger={action === "reset" || action === "ship_variant"} typed={action === "reset" ? experiment.feature_flag_key ?? undefined : undefined} act={act} onClose={onClose}>
      {results?.verdict?.withholds_decisions && ending && <p class="fault">{visible(results.verdict.headline)}</p>}
      {action === "ship_variant" ? (
        <Shipping experiment={experiment} totals={totals} variant={variant} setVariant={setVariant} everyone={everyone} setEveryone={setEveryone} />
      ) : (
        <ul>
          {consequences(action, experiment, people).map((line) => (
            <li key={line}>{visible(line)}</li>
          ))}
        </ul>
      )}
      {ending && (
        <label class="filter">
          <span>Conclusion</span>
          <select value={conclusion} onChange={(event) => setConclusion(event.currentTarget.value)}>
            {CONCLUSIONS.map(([key, text]) => (
              <option key={key} value={key}>
                {text}
              </option>
            ))}
          </select>
        </label>
      )}
    </Confirm>
  )
}

interface ShippingProps {
  experiment: Schemas["ExperimentOut"]
  totals: Readonly<Record<string, number>>
  variant: string
  setVariant: (key: string) => void
  everyone: boolean
  setEveryone: (on: boolean) => void
}

function Shipping({ experiment, totals, variant, setVariant, everyone, setEveryone }: ShippingProps) {
  const id = useId()
  const filters = (experiment.feature_flag?.filters ?? {}) as Record<string, unknown>
  const rules = [["Now", filters], ["After", shipped(filters, variant, everyone)]] as const
  return (
    <>
      <label class="filter">
        <span>Variant</span>
        <select value={variant} onChange={(event) => setVariant(event.currentTarget.value)}>
          {variantsOf(experiment).map((each) => (
            <option key={each.key} value={each.key}>
              {visible(each.key)}
            </option>
          ))}
        </select>
      </label>
      <p>
        {counted(switching(totals, variant), "person", "people")} of the experiment will see <strong>{visible(variant)}</strong> from now on, in place of another variant.
        {experiment.end_date === null && " The experiment ends."}
      </p>
      <p>
        <input id={id} type="checkbox" checked={everyone} onChange={(event) => setEveryone(event.currentTarget.checked)} /> <label for={id}>Release to everybody, ignoring the flag's conditions</label>
      </p>
      <div class="before-after">
        {rules.map(([title, each]) => (
          <div key={title}>
            <h3>{title}</h3>
            <ul class="rules">
              {ruleTexts(each).map((line, at) => (
                <li key={at}>{visible(line)}</li>
              ))}
            </ul>
          </div>
        ))}
      </div>
    </>
  )
}
