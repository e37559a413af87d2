// How many people and days the draft takes, from what the project's people did before.

import { useEffect, useState } from "preact/hooks"
import { post } from "../../api/client"
import { lacks } from "../../api/session"
import { useSettled } from "../../kit/hooks"
import { told } from "../../kit/states"
import { list, object, type Json } from "../../lib/loose"
import { criteriaOf, type Draft, type Planned, statsOf } from "./draft"
import { problemOfMetric, type MetricDraft, wireOfMetric } from "./metric"

export interface PlanPoint extends Planned {
  /** Relative effect, with its sign. */
  effect: number
}

export interface Plan {
  /** What the smallest effect takes. */
  chosen: PlanPoint
  curve: readonly PlanPoint[]
  /** The least effect that a number of days finds. */
  detectable: readonly PlanPoint[]
  mean: number | null
  /** New people a day in the last week. */
  perDay: number
  people: number
  /** The event by which people of the past were counted. */
  event: string
}

const CURVE = [0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.1, 1.25, 1.5, 1.75, 2, 2.5, 3]
const HISTORY_DAYS = 28

/** The metric that the plan is made for: the first primary one that is complete. */
export function plannedMetric(draft: Draft): MetricDraft | null {
  return draft.metrics.find((metric) => metric.role === "primary" && problemOfMetric(metric) === null) ?? null
}

/** With guardrails each metric has to be found more often, so that all together are in 80 % of experiments. */
function powerOf({ metrics }: Draft): number {
  return 1 - 0.2 / (metrics.filter(({ role }) => role === "guardrail").length + 1)
}

/** The question to the planner; null: the draft is not far enough for one. */
export function planQuery(draft: Draft): Json | null {
  const metric = plannedMetric(draft)
  const effect = Number(draft.effect) / 100
  const shares = draft.variants.map(({ key, share }) => ({ key: key.trim(), split_percent: Number(share) }))
  if (metric === null || !(effect > 0) || shares.length < 2 || shares.some(({ key, split_percent: share }) => key === "" || !(share > 0))) return null
  const sign = metric.goal === "decrease" ? -1 : 1
  const effects = [effect, ...CURVE.map((times) => effect * times)].filter((each) => sign > 0 || each < 1)
  return {
    kind: "ExperimentPlanQuery",
    metric: wireOfMetric(metric),
    experiment: { parameters: { feature_flag_variants: shares, rollout_percentage: Number(draft.rollout) }, stats_config: statsOf(draft), exposure_criteria: criteriaOf(draft) },
    effects: effects.map((each) => sign * Number(each.toPrecision(6))),
    history_days: HISTORY_DAYS,
    power: powerOf(draft),
  }
}

const count = (value: unknown) => (typeof value === "number" && Number.isFinite(value) ? value : null)
const pointOf = (row: Json): PlanPoint => ({ effect: count(row.effect) ?? Number.NaN, people: count(row.people), days: count(row.days) })

export function planOf(answer: unknown): Plan | null {
  const found = object(answer)
  const history = object(found.history)
  const [chosen, ...curve] = list(found.effects).map(pointOf)
  if (chosen === undefined) return null
  const perDay = (Array.isArray(history.people_per_day) ? history.people_per_day : []).map(Number)
  const recent = perDay.length > 1 ? perDay.slice(-8, -1) : perDay
  return {
    chosen,
    curve: [chosen, ...curve].sort((a, b) => Math.abs(a.effect) - Math.abs(b.effect)),
    detectable: list(found.detectable).map(pointOf).filter(({ effect }) => Number.isFinite(effect)),
    mean: count(history.mean),
    perDay: recent.length ? recent.reduce((sum, each) => sum + each, 0) / recent.length : 0,
    people: count(history.people) ?? 0,
    event: String(history.event ?? ""),
  }
}

export interface Planning {
  plan: Plan | null
  fault: string | null
  isAsking: boolean
}

export function askPlan(project: string, query: Json): Promise<Plan | null> {
  return post("/api/projects/{project_id}/query/", { project_id: project }, { query, refresh: "blocking" }).then(planOf)
}

/** The plan of a draft, asked for again when it stays changed for a moment. */
export function usePlan(project: string, draft: Draft): Planning {
  const query = planQuery(draft)
  const wanted = useSettled(query === null ? "" : JSON.stringify(query), 500)
  const [found, setFound] = useState<Planning & { of: string }>({ plan: null, fault: null, isAsking: false, of: "" })
  const mayAsk = lacks("query:read") === null || lacks("experiment:read") === null
  useEffect(() => {
    if (wanted === "" || !mayAsk) return undefined
    let gone = false
    setFound((before) => ({ ...before, isAsking: true }))
    askPlan(project, JSON.parse(wanted) as Json).then(
      (plan) => gone || setFound({ plan, fault: null, isAsking: false, of: wanted }),
      (error: unknown) => gone || setFound({ plan: null, fault: told(error).detail, isAsking: false, of: wanted }),
    )
    return () => {
      gone = true
    }
  }, [project, wanted])
  if (query === null) return { plan: null, fault: null, isAsking: false }
  return { ...found, isAsking: found.isAsking || found.of !== JSON.stringify(query) }
}

/** Whole weeks, so that every weekday counts alike; at least one. */
export function wholeWeeks(days: number): number {
  return Math.max(7, Math.ceil(days / 7) * 7)
}

/** What is saved of a plan: whole weeks and the people whom they have to bring. */
export function recommended(plan: Plan | null): Planned | null {
  if (plan === null || plan.chosen.days === null) return null
  return { days: wholeWeeks(plan.chosen.days), people: plan.chosen.people }
}
