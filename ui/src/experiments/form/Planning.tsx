// How the experiment decides, and how long that takes.

import { useEffect, useState } from "preact/hooks"
import { post } from "../../api/client"
import { Button } from "../../kit/basics"
import { Field } from "../../kit/forms"
import { useSettled } from "../../kit/hooks"
import { told } from "../../kit/states"
import { counted, countText, meanText } from "../../lib/format"
import type { Json } from "../../lib/loose"
import { DaysCurve } from "../../plots/curve"
import { equalised } from "../../lib/split"
import { baselineOf, type Draft, METHODS, type Method, type Planned } from "./draft"
import type { MetricDraft } from "./metric"
import type { PartProps } from "./Parts"
import { askPlan, type Plan, plannedMetric, type Planning as Found, planQuery, wholeWeeks } from "./plan"
import { metricName } from "./words"

const LONG_DAYS = 60

export function Deciding({ draft, change, fault }: PartProps) {
  return (
    <section class="card" aria-labelledby="part-deciding">
      <h2 id="part-deciding">How it decides</h2>
      <fieldset class="plain-set">
        <legend class="unseen">Stopping rule</legend>
        {METHODS.map(([key, name, words]) => (
          <label key={key} class="choice stopping">
            <input type="radio" name="method" checked={draft.method === key} onChange={() => change({ method: key as Method })} />
            <strong>{name}</strong>
            <span class="quiet">{words}</span>
          </label>
        ))}
      </fieldset>
      {draft.method === "group_sequential" && (
        <Field label="Analyses, the planned end included" error={fault("level")}>
          {(given) => <input {...given} class="share" inputmode="numeric" placeholder="4" value={draft.analyses} onInput={(event) => change({ analyses: event.currentTarget.value.trim() })} />}
        </Field>
      )}
      <label class="check">
        <input type="checkbox" checked={draft.pausesOnHarm} onChange={(event) => change({ pausesOnHarm: event.currentTarget.checked })} /> Pause it by itself as soon as a variant is certainly worse
      </label>
      <details>
        <summary>Certainty, effects, CUPED, correction</summary>
        <div class="fields">
          <Field label="Certainty in percent" error={draft.method === "group_sequential" ? null : fault("level")}>
            {(given) => <input {...given} inputmode="decimal" value={draft.level} onInput={(event) => change({ level: event.currentTarget.value })} />}
          </Field>
          <Field label="Effects are shown">
            {(given) => (
              <select {...given} value={draft.relative ? "yes" : ""} onChange={(event) => change({ relative: event.currentTarget.value !== "" })}>
                <option value="yes">relative, in percent of the baseline</option>
                <option value="">absolute, in the unit of the metric</option>
              </select>
            )}
          </Field>
          {draft.method !== "bayesian" && (
            <Field label="Correction for several metrics and variants">
              {(given) => (
                <select {...given} value={draft.correction} onChange={(event) => change({ correction: event.currentTarget.value })}>
                  <option value="none">none</option>
                  <option value="holm">Holm</option>
                  <option value="bonferroni">Bonferroni</option>
                  <option value="benjamini-hochberg">Benjamini–Hochberg</option>
                </select>
              )}
            </Field>
          )}
        </div>
        <label class="check">
          <input type="checkbox" checked={draft.cuped} onChange={(event) => change({ cuped: event.currentTarget.checked })} /> CUPED: use what people did before to need fewer of them
        </label>
      </details>
    </section>
  )
}

interface PlanningProps extends PartProps {
  planning: Found
  /** What is planned without a history. */
  setByHand: (planned: Planned | null) => void
}

export function Planning({ draft, change, fault, planning, project, setByHand }: PlanningProps) {
  const { plan, fault: refusal, isAsking } = planning
  const metric = plannedMetric(draft)
  // A metric that nobody has moved yet says nothing about its future.
  const isBlank = plan !== null && !plan.mean
  const why = refusal ?? (isBlank ? "The metric is 0 for everybody in the last four weeks." : null)
  return (
    <section class="card" aria-labelledby="part-plan">
      <h2 id="part-plan">How long it takes</h2>
      <Field label="Smallest effect worth knowing, in percent" error={fault("effect")} hint={metric === null ? "Complete a primary metric first: its history says how many people this takes." : draft.effect.trim() === "" ? "Without it nobody knows how long the experiment has to run." : undefined}>
        {(given) => (
          <div class="filters">
            <input {...given} class="share" inputmode="decimal" value={draft.effect} onInput={(event) => change({ effect: event.currentTarget.value })} />
            <input type="range" min="1" max="50" step="1" aria-label="Smallest effect as a slider" value={draft.effect || "10"} onInput={(event) => change({ effect: event.currentTarget.value })} />
            {plan !== null && metric !== null && <span class="quiet">{absoluteText(plan, metric)}</span>}
          </div>
        )}
      </Field>
      <div aria-live="polite">
        {metric !== null && plan === null && isAsking && <p class="quiet">Reading the last four weeks …</p>}
        {metric !== null && plan !== null && !isBlank && <Answer draft={draft} change={change} plan={plan} metric={metric} project={project} isOld={isAsking} />}
      </div>
      {metric !== null && why !== null && <ByHand draft={draft} metric={metric} why={why} project={project} setByHand={setByHand} />}
      <details open={draft.days !== "" || draft.people !== ""}>
        <summary>Plan another length</summary>
        <div class="fields">
          <Field label="Days" error={fault("days")} hint="Empty: as planned above.">
            {(given) => <input {...given} inputmode="numeric" value={draft.days} placeholder={plan?.chosen.days ? String(wholeWeeks(plan.chosen.days)) : ""} onInput={(event) => change({ days: event.currentTarget.value.trim() })} />}
          </Field>
          <Field label="People" error={fault("people")} hint="The verdict waits for both.">
            {(given) => <input {...given} inputmode="numeric" value={draft.people} placeholder={plan?.chosen.people ? String(plan.chosen.people) : ""} onInput={(event) => change({ people: event.currentTarget.value.trim() })} />}
          </Field>
        </div>
        {plan !== null && (draft.days !== "" || draft.people !== "") && (
          <Button kind="quiet" onClick={() => change({ days: "", people: "" })}>
            Follow the plan above
          </Button>
        )}
      </details>
    </section>
  )
}

const isShare = (metric: MetricDraft) => metric.type === "funnel" || metric.type === "retention" || metric.threshold !== ""

function absoluteText({ mean, chosen }: Plan, metric: MetricDraft): string {
  if (mean === null || !mean) return ""
  const text = (value: number) => meanText(value, isShare(metric))
  return `from ${text(mean)} to ${text(mean * (1 + chosen.effect))}`
}

interface AnswerProps extends Pick<PartProps, "draft" | "change" | "project"> {
  plan: Plan
  metric: MetricDraft
  isOld: boolean
}

function Answer({ draft, change, plan, metric, project, isOld }: AnswerProps) {
  const { days, people } = plan.chosen
  const points = plan.curve.flatMap((point) => (point.days === null ? [] : [{ effect: Math.abs(point.effect), days: point.days }]))
  const traffic = `About ${counted(Math.round(plan.perDay), "new person", "new people")} a day in the last week${plan.event === "any event" ? ", with any event" : `, with ${plan.event}`}.`
  const title = points.map((point) => `${Number((point.effect * 100).toPrecision(3))}%: ${counted(point.days, "day")}`).join(", ")
  return (
    <div class={isOld ? "plan old" : "plan"}>
      <p class="plan-length">
        {days === null ? (
          <strong>{people === null ? "No number of people is enough." : `${counted(people, "person", "people")}, who would take more than ten years.`}</strong>
        ) : (
          <>
            <strong>{counted(days, "day")}</strong> with <strong>{counted(people ?? 0, "person", "people")}</strong>
            {wholeWeeks(days) !== days && <span class="quiet"> — planned for {counted(wholeWeeks(days), "day")}, so that each weekday counts alike</span>}
          </>
        )}
      </p>
      <p class="quiet">
        {metricName(metric)}: {meanText(plan.mean, isShare(metric))} now. {traffic}
      </p>
      {days !== null && points.length > 2 && <DaysCurve points={points} chosen={{ effect: Math.abs(plan.chosen.effect), days }} title={`Days against the smallest effect that is found. ${title}`} />}
      {(days === null || days > LONG_DAYS) && <Levers draft={draft} change={change} plan={plan} project={project} />}
    </div>
  )
}

interface Lever {
  words: string
  changed: Partial<Draft>
}

function leversOf(draft: Draft, plan: Plan): Lever[] {
  const levers: Lever[] = []
  const [first] = draft.variants.filter(({ key }) => key !== baselineOf(draft))
  const baseline = draft.variants.find(({ key }) => key === baselineOf(draft))
  if (draft.variants.length > 2 && first && baseline && !draft.isLinked) levers.push({ words: `Compare ${first.key} alone with ${baseline.key}`, changed: { variants: equalised([baseline, first]) } })
  const reachable = plan.detectable.find((point) => point.days === 28) ?? plan.detectable.at(-1)
  if (reachable && reachable.effect > Math.abs(plan.chosen.effect)) levers.push({ words: `Look for ${Math.ceil(reachable.effect * 100)}% in place of ${draft.effect}%`, changed: { effect: String(Math.ceil(reachable.effect * 100)) } })
  if (!draft.cuped) levers.push({ words: "Use CUPED", changed: { cuped: true } })
  if (draft.method === "sequential") levers.push({ words: "Decide once, at the end", changed: { method: "frequentist" } })
  return levers.slice(0, 3)
}

/** What would make it shorter, each with the days that it would take. */
function Levers({ draft, change, plan, project }: Pick<AnswerProps, "draft" | "change" | "plan" | "project">) {
  const levers = leversOf(draft, plan)
  const queries = JSON.stringify(levers.map(({ changed }) => planQuery({ ...draft, ...changed })))
  const [days, setDays] = useState<{ of: string; days: readonly (number | null | undefined)[] }>({ of: "", days: [] })
  useEffect(() => {
    let gone = false
    void Promise.all((JSON.parse(queries) as (Json | null)[]).map((query) => (query === null ? undefined : askPlan(project, query).then((found) => found?.chosen.days, () => undefined)))).then((found) => gone || setDays({ of: queries, days: found }))
    return () => {
      gone = true
    }
  }, [project, queries])
  const known = days.of === queries ? days.days : []
  const helps = (found: number | null | undefined) => found !== null && (found === undefined || plan.chosen.days === null || found < plan.chosen.days)
  if (levers.length === 0 || !levers.some((_, at) => helps(known[at]))) return null
  return (
    <div class="levers">
      <h3>That is long. What makes it shorter:</h3>
      {levers.map(({ words, changed }, at) => {
        const found = known[at]
        return helps(found) && (
          <div key={words} class="row">
            <span>
              {words}: {typeof found === "number" ? <strong>{counted(found, "day")}</strong> : "…"}
            </span>
            <Button label={`Do this: ${words}`} onClick={() => change(changed)}>
              Do this
            </Button>
          </div>
        )
      })}
    </div>
  )
}

const CALCULATED: Record<string, string> = { funnel: "funnel", ratio: "ratio", retention: "retention" }

interface ByHandProps {
  draft: Draft
  metric: MetricDraft
  why: string
  project: string
  setByHand: (planned: Planned | null) => void
}

/** A plan without a history, from what people know of their product. */
function ByHand({ draft, metric, why, project, setByHand }: ByHandProps) {
  const [value, setValue] = useState("")
  const [perDay, setPerDay] = useState("")
  const [found, setFound] = useState<{ people: number | null; days: number | null } | null>(null)
  const [fault, setFault] = useState<string | null>(null)
  const share = isShare(metric)
  const wanted = useSettled(JSON.stringify([value, perDay, draft.effect, draft.variants.length, metric.type, metric.sources[0]?.math]), 400)
  useEffect(() => {
    if (!(Number(value) > 0) || !(Number(perDay) > 0) || !(Number(draft.effect) > 0)) {
      setFound(null)
      setByHand(null)
      return undefined
    }
    let gone = false
    const kind = share ? "funnel" : (CALCULATED[metric.type] ?? (metric.sources[0]?.math === "sum" ? "mean_sum_or_avg" : "mean_count"))
    const body = { metric_type: kind, minimum_detectable_effect: Number(draft.effect), number_of_variants: draft.variants.length, baseline_value: share ? Number(value) / 100 : Number(value), exposure_rate_per_day: Number(perDay) }
    post("/api/projects/{project_id}/experiments/calculate_running_time/", { project_id: project }, body).then(
      ({ recommended_sample_size: people, recommended_running_time_days: days }) => {
        if (gone) return
        setFound({ people, days })
        setFault(null)
        setByHand(days === null ? null : { people, days: wholeWeeks(days) })
      },
      (error: unknown) => gone || setFault(told(error).detail),
    )
    return () => {
      gone = true
    }
  }, [project, wanted])
  return (
    <div class="plan">
      <p>There is no history to plan from. {why}</p>
      <div class="fields">
        <Field label={share ? `${metricName(metric)} now, in percent` : `${metricName(metric)} now`}>{(given) => <input {...given} inputmode="decimal" value={value} onInput={(event) => setValue(event.currentTarget.value)} />}</Field>
        <Field label="New people a day">{(given) => <input {...given} inputmode="decimal" value={perDay} onInput={(event) => setPerDay(event.currentTarget.value)} />}</Field>
      </div>
      {fault && <p class="fault">{fault}</p>}
      {found !== null && (
        <p class="plan-length" role="status">
          {found.days === null ? "This cannot be calculated from one number: plan a length below." : <><strong>{counted(found.days, "day")}</strong> with <strong>{countText(found.people ?? 0)} people</strong></>}
        </p>
      )}
    </div>
  )
}
