// What is known of the experiment in a sentence, what it rests on, and the next step as a button.

import { useState } from "preact/hooks"
import type { Schemas } from "../api/client"
import { Button, Link } from "../kit/basics"
import { pathOf } from "../lib/router"
import { visible } from "../lib/format"
import { dayText } from "../lib/time"
import { ActionDialog } from "./Actions"
import { stepOf } from "./decision"
import type { Results, Verdict } from "./reading"

const DECIDED: ReadonlySet<string> = new Set(["better", "not_shown_safe", "worse", "mixed", "inconclusive"])

/** Reasons that say what was recorded of the experiment: they stand beside the verdict, not among its reasons. */
const RECORDED: ReadonlySet<string> = new Set(["amended", "alarm", "decided"])

/** When the numbers may be read: at any time, at planned analyses, or once, at the planned end. */
export function lookText(verdict: Pick<Verdict, "reads_at_any_time" | "state" | "withholds_decisions" | "next_action" | "reasons">): string {
  if (verdict.next_action.code === "stop_for_harm") return "The test for harm is valid at any time: you may act on it now."
  const design = verdict.reasons.find((reason) => reason.code === "planned_analyses" || reason.code === "hybrid")
  if (design) return design.text
  if (verdict.reads_at_any_time) return "The method is valid at any time: you may look as often as you like."
  if (verdict.reasons.some((reason) => reason.code === "stopped_early")) return "The method is valid for one look, at the planned end, which was not reached."
  if (DECIDED.has(verdict.state) && !verdict.withholds_decisions) return "The method is valid for one look, at the planned end. This was it; later numbers do not change the decision."
  return "The method is valid for one look, at the planned end: do not stop early because of these numbers."
}

interface CardProps {
  experiment: Schemas["ExperimentOut"]
  results: Results
  project: string
}

export function VerdictCard({ experiment, results, project }: CardProps) {
  const [open, setOpen] = useState(false)
  const verdict = results.verdict
  if (!verdict) return null
  const step = stepOf(experiment, verdict, results.statistics.baseline)
  const to = pathOf("p", project, "experiments", experiment.id)
  const recorded = verdict.reasons.filter((reason) => RECORDED.has(reason.code))
  return (
    <section class={`card verdict ${verdict.state}`} aria-labelledby="verdict">
      <div class="grow">
        <h2 id="verdict">{visible(verdict.headline)}</h2>
        {verdict.as_of && !verdict.withholds_decisions && <p>Decided by the numbers at the end of {dayText(verdict.as_of)}, {verdict.reasons.some((reason) => reason.code === "decided_at_analysis") ? "at a planned analysis" : "when the plan was complete"}. The table shows the current numbers.</p>}
        <p>{visible(verdict.next_action.text)}</p>
        <p class="quiet">
          {lookText(verdict)}
        </p>
        {recorded.map((record) => (
          <p class="quiet" key={record.text}>
            {visible(record.text)}
          </p>
        ))}
        {verdict.reasons.length > 0 && (
          <details>
            <summary>Reasons</summary>
            <ul>
              {verdict.reasons.filter((reason) => !RECORDED.has(reason.code)).map((reason) => (
                <li key={`${reason.code} ${reason.metric_uuid} ${reason.variant} ${reason.text}`}>{visible(reason.text)}</li>
              ))}
            </ul>
          </details>
        )}
      </div>
      {step && (
        <div class="next">
          {step.tab ? (
            <Link class="button" to={to} query={new URLSearchParams({ tab: step.tab })}>
              {step.words}
            </Link>
          ) : (
            <Button onClick={() => setOpen(true)}>{step.words}</Button>
          )}
        </div>
      )}
      {open && step?.action && (
        <ActionDialog action={step.action} experiment={experiment} results={results} project={project} onClose={() => setOpen(false)} />
      )}
    </section>
  )
}
