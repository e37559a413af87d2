// An experiment while it is edited: the draft, what it is on the wire, and what it still lacks.

import type { Schemas } from "../../api/client"
import { type PropertyDraft, propertyOf, wireOfProperty } from "../../filters/property"
import { type Json, list, object, text } from "../../lib/loose"
import { sumOf, type VariantDraft } from "../../lib/split"
import { type MetricDraft, metricDraftOf, problemOfMetric, wireOfMetric } from "./metric"

export type Experiment = Schemas["ExperimentOut"]

export interface SharedDraft {
  id: number
  name: string
  role: "primary" | "secondary"
}

export const METHODS = [
  ["frequentist", "Decide once, at the end", "The shortest plan. The verdict waits for the planned end."],
  ["group_sequential", "Decide at planned analyses", "A few looks, evenly spread. Often ends early; the plan is hardly longer."],
  ["hybrid", "At any time if it is very clear, else at the end", "Stops early on large effects and looks once more at the planned end."],
  ["sequential", "Decide at any time", "May be read every day, also after the planned end. Takes about twice as many people."],
  ["bayesian", "Chance to win", "Says how likely each variant is the better one. Decides at the planned end."],
] as const
export type Method = (typeof METHODS)[number][0]

export interface Draft {
  name: string
  hypothesis: string
  key: string
  /** Whether somebody wrote the key; else it follows the name. */
  ownKey: boolean
  /** Whether the flag of this key is there already and stays as it is. */
  isLinked: boolean
  variants: readonly VariantDraft[]
  rollout: string
  /** Who may take part; all filters have to match. */
  conditions: readonly PropertyDraft[]
  persists: boolean
  holdout: string
  /** How people are met: `flag`, or the kind of an event source. */
  exposure: string
  exposureEvent: string
  exposureAction: string
  exposureProperties: readonly PropertyDraft[]
  filtersTestAccounts: boolean
  several: string
  metrics: readonly MetricDraft[]
  shared: readonly SharedDraft[]
  method: Method
  /** How many analyses are planned, where the method has some; empty: as the server does. */
  analyses: string
  /** Certainty in percent. */
  level: string
  relative: boolean
  baseline: string
  correction: string
  cuped: boolean
  pausesOnHarm: boolean
  /** The smallest effect worth finding, in percent. */
  effect: string
  /** Planned length and size; empty: as the plan says. */
  days: string
  people: string
  rest: { parameters: Json; stats: Json; criteria: Json }
}

export const NEW: Draft = {
  name: "", hypothesis: "", key: "", ownKey: false, isLinked: false, variants: [{ key: "control", share: "50", rest: {} }, { key: "test", share: "50", rest: {} }], rollout: "100", conditions: [], persists: false, holdout: "", exposure: "flag", exposureEvent: "", exposureAction: "",
  exposureProperties: [], filtersTestAccounts: true, several: "exclude", metrics: [], shared: [], method: "frequentist", analyses: "", level: "95", relative: true, baseline: "", correction: "none", cuped: false, pausesOnHarm: false, effect: "10", days: "", people: "", rest: { parameters: {}, stats: {}, criteria: {} },
}

/** The key that a name suggests: "New checkout!" is `new-checkout`. */
export function keyOf(name: string): string {
  return name.normalize("NFKD").replace(/[\u0300-\u036f]/g, "").toLowerCase().replace(/[^a-z0-9_]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 100)
}

const percent = (value: number) => String(Number((value * 100).toPrecision(8)))
const share = (written: string) => Number((Number(written) / 100).toPrecision(8))

export function draftOf(experiment: Experiment): Draft {
  const { feature_flag_variants: _v, rollout_percentage: _r, ensure_experience_continuity: persists, pause_on_harm: pauses, minimum_detectable_effect: _m, recommended_running_time: _t, recommended_sample_size: _s, exposure_estimate_config: _e, feature_flag_payloads: _p, aggregation_group_type_index: _g, excluded_variants: _x, ...parameters } = object(experiment.parameters)
  const { method, bayesian, frequentist, baseline_variant_key: baseline, cuped, multiple_testing_correction: correction, ...stats } = object(experiment.stats_config)
  const { filterTestAccounts: filters, exposure_config: config, multiple_variant_handling: several, ...criteria } = object(experiment.exposure_criteria)
  const flag = object(experiment.feature_flag?.filters)
  const [group = {}] = list(flag.groups)
  const [classic, other] = [object(frequentist), object(bayesian)]
  const isBayesian = method !== "frequentist"
  const own = isBayesian ? other : classic
  const met = object(config)
  const isFlag = Object.keys(met).length === 0 || (met.kind !== "ActionsNode" && (met.event === "$feature_flag_called" || met.event === "$experiment_exposure"))
  const plan = object(experiment.running_time_calculation)
  const metrics = [
    ...list(experiment.metrics).map((metric) => metricDraftOf(metric, "primary")),
    ...list(experiment.metrics_secondary).map((metric) => metricDraftOf(metric, metric.role === "guardrail" ? "guardrail" : "secondary")),
  ]
  return {
    ...NEW,
    name: experiment.name,
    hypothesis: experiment.description ?? "",
    key: experiment.feature_flag_key ?? "",
    ownKey: true,
    variants: list(object(flag.multivariate).variants).map(({ key, rollout_percentage: part, ...rest }) => ({ key: String(key ?? ""), share: String(part ?? 0), rest })),
    rollout: String(group.rollout_percentage ?? 100),
    conditions: list(group.properties).map(propertyOf),
    persists: persists === true,
    holdout: experiment.holdout_id === null ? "" : String(experiment.holdout_id),
    exposure: isFlag ? "flag" : met.kind === "ActionsNode" ? "ActionsNode" : "EventsNode",
    exposureEvent: isFlag ? "" : (text(met.event) ?? ""),
    exposureAction: met.kind === "ActionsNode" ? String(met.id ?? "") : "",
    exposureProperties: isFlag ? [] : list(met.properties).map(propertyOf),
    filtersTestAccounts: filters !== false,
    several: several === "first_seen" ? "first_seen" : "exclude",
    metrics,
    shared: experiment.saved_metrics.map((link) => ({ id: link.saved_metric, name: link.name, role: object(link.metadata).type === "secondary" ? "secondary" : "primary" })),
    method: isBayesian ? "bayesian" : classic.design === "group_sequential" || classic.design === "hybrid" ? classic.design : classic.sequential_testing_enabled === true ? "sequential" : "frequentist",
    analyses: typeof classic.analyses === "number" ? String(classic.analyses) : "",
    level: isBayesian ? percent(typeof other.ci_level === "number" ? other.ci_level : 0.95) : percent(1 - (typeof classic.alpha === "number" ? classic.alpha : 0.05)),
    relative: own.difference_type !== "ABSOLUTE",
    baseline: text(baseline) ?? "",
    correction: text(correction) ?? "none",
    cuped: object(cuped).enabled === true,
    pausesOnHarm: pauses === true,
    effect: String(plan.minimum_detectable_effect ?? ""),
    days: String(plan.recommended_running_time ?? ""),
    people: String(plan.recommended_sample_size ?? ""),
    rest: {
      parameters,
      stats: { ...stats, ...(bayesian !== undefined && { bayesian }), ...(frequentist !== undefined && { frequentist }), ...(cuped !== undefined && { cuped }) },
      criteria: { ...criteria, ...(isFlag && config !== undefined && { exposure_config: config }) },
    },
  }
}

/** The variant that others are compared with. */
export function baselineOf({ baseline, variants }: Draft): string {
  return baseline || (variants.find(({ key }) => key === "control") ?? variants[0])?.key || ""
}

export function statsOf({ method, analyses, level, relative, baseline, correction, cuped, rest }: Draft): Json {
  const [{ design: _design, analyses: _analyses, ...classic }, other, variance] = [object(rest.stats.frequentist), object(rest.stats.bayesian), object(rest.stats.cuped)]
  const design = method === "group_sequential" ? { design: method, ...(analyses && { analyses: Number(analyses) }) } : method === "hybrid" ? { design: method } : {}
  const type = { difference_type: relative ? "RELATIVE" : "ABSOLUTE" }
  const certainty = share(level)
  const own =
    method === "bayesian"
      ? { method: "bayesian", bayesian: { ...other, ci_level: certainty, ...type } }
      : { method: "frequentist", frequentist: { ...classic, alpha: Number((1 - certainty).toPrecision(8)), ...type, sequential_testing_enabled: method === "sequential", ...design } }
  return {
    ...rest.stats, ...own, ...(baseline && { baseline_variant_key: baseline }), ...(correction !== "none" && { multiple_testing_correction: correction }),
    ...((cuped || rest.stats.cuped !== undefined) && { cuped: { ...variance, enabled: cuped } }),
  }
}

export function criteriaOf(draft: Draft): Json {
  const { exposure, exposureEvent, exposureAction, exposureProperties, filtersTestAccounts, several, rest } = draft
  const properties = exposureProperties.map(wireOfProperty)
  const met = exposure === "ActionsNode" ? { kind: "ActionsNode", id: Number(exposureAction), properties } : { kind: "ExperimentEventExposureConfig", event: exposureEvent.trim(), properties }
  return { ...rest.criteria, filterTestAccounts: filtersTestAccounts, multiple_variant_handling: several, ...(exposure !== "flag" && { exposure_config: met }) }
}

export interface Planned {
  days: number | null
  people: number | null
}

/** The parts of the body that creates the experiment; `plan`: what the planner recommends now. */
export function bodyOf(draft: Draft, plan: Planned | null): Json {
  const flag = draft.isLinked
    ? {}
    : {
        feature_flag_variants: draft.variants.map(({ key, share: part, rest }) => ({ ...(text(rest.name) && { name: rest.name }), key: key.trim(), split_percent: Number(part) })),
        rollout_percentage: Number(draft.rollout),
        ensure_experience_continuity: draft.persists,
      }
  const [days, people] = [Number(draft.days) || plan?.days, Number(draft.people) || plan?.people]
  return {
    name: draft.name.trim(),
    description: draft.hypothesis.trim(),
    parameters: { ...draft.rest.parameters, ...flag, pause_on_harm: draft.pausesOnHarm },
    holdout_id: draft.holdout === "" ? null : Number(draft.holdout),
    exposure_criteria: criteriaOf(draft),
    metrics: draft.metrics.filter(({ role }) => role === "primary").map(wireOfMetric),
    metrics_secondary: draft.metrics.filter(({ role }) => role !== "primary").map(wireOfMetric),
    saved_metrics_ids: draft.shared.map(({ id, role }) => ({ id, metadata: { type: role } })),
    stats_config: statsOf(draft),
    running_time_calculation: {
      ...(Number(draft.effect) && { minimum_detectable_effect: Number(draft.effect) }),
      ...(days && { recommended_running_time: days }),
      ...(people && { recommended_sample_size: people }),
    },
  }
}

/** The condition set of the flag, beside the rollout. */
export function groupsOf({ conditions, rollout }: Draft): Json[] {
  return [{ properties: conditions.map(wireOfProperty), rollout_percentage: Number(rollout) }]
}

/** What has to be sent so that the stored experiment is as the draft: its own part, and the condition set of its flag (null: as it is). */
export function changesOf(stored: Experiment, draft: Draft, plan: Planned | null): { fields: Json; groups: Json[] | null } {
  const before = draftOf(stored)
  const [was, now] = [bodyOf(before, null), bodyOf(draft, plan)]
  const fields = Object.fromEntries(Object.entries(now).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(was[name])))
  const groups = JSON.stringify(before.conditions) === JSON.stringify(draft.conditions) ? null : groupsOf(draft)
  return { fields, groups }
}

/** Whether the form can show who takes part: one condition set, which forces no variant. */
export function hasPlainConditions(experiment: Experiment): boolean {
  const groups = list(object(experiment.feature_flag?.filters).groups)
  return groups.length === 1 && !text(groups[0]?.variant)
}

const isShare = (written: string) => written.trim() !== "" && Number(written) >= 0 && Number(written) <= 100

/** What cannot be saved, by the field that has it. */
export function problemsOf(draft: Draft): Record<string, string> {
  const found: Record<string, string> = {}
  if (draft.name.trim() === "") found.name = "Give the experiment a name."
  if (draft.key.trim() === "") found.key = "Give the flag a key."
  else if (!/^[a-zA-Z0-9_-]+$/.test(draft.key.trim())) found.key = "A key has letters, digits, hyphens and underscores."
  const keys = draft.variants.map(({ key }) => key.trim())
  const sum = sumOf(draft.variants)
  if (keys.length < 2) found.variants = "An experiment compares at least two variants."
  else if (keys.includes("")) found.variants = "Every variant needs a key."
  else if (new Set(keys).size < keys.length) found.variants = "Two variants have the same key."
  else if (draft.variants.some((variant) => !isShare(variant.share))) found.variants = "The share of a variant is a number from 0 to 100."
  else if (sum !== 100) found.variants = `The shares sum to ${sum}%. They must sum to 100%.`
  if (!isShare(draft.rollout)) found.rollout = "The rollout is a number from 0 to 100."
  if (draft.conditions.some(({ key, type }) => key.trim() === "" && type !== "cohort")) found.conditions = "A filter has no property yet."
  if (draft.exposure === "EventsNode" && draft.exposureEvent.trim() === "") found.exposure = "Name the event."
  if (draft.exposure === "ActionsNode" && draft.exposureAction === "") found.exposure = "Choose an action."
  for (const metric of draft.metrics) {
    const problem = problemOfMetric(metric)
    if (problem !== null) found[`metric ${metric.id}`] = problem
  }
  if (!(Number(draft.level) >= 50 && Number(draft.level) < 100)) found.level = "The certainty is a number from 50 to below 100."
  if (draft.method === "group_sequential" && draft.analyses !== "" && !(/^\d+$/.test(draft.analyses) && Number(draft.analyses) >= 2 && Number(draft.analyses) <= 20)) found.level = "The number of analyses is from 2 to 20."
  if (draft.effect.trim() !== "" && !(Number(draft.effect) > 0 && Number(draft.effect) <= 1000)) found.effect = "The effect is a number above 0."
  for (const name of ["days", "people"] as const) if (draft[name] !== "" && !(/^\d+$/.test(draft[name]) && Number(draft[name]) > 0)) found[name] = "This is a whole number, or empty."
  return found
}

const PLACES: Record<string, string> = { name: "name", description: "hypothesis", feature_flag_key: "key", feature_flag: "key", holdout_id: "holdout", exposure_criteria: "exposure", stats_config: "level", running_time_calculation: "effect", saved_metrics_ids: "metrics" }

/** Where a refusal of the API belongs, and its text. */
export function faultOf(draft: Draft, attr: string | null, detail: string): [string, string] {
  const field = (attr ?? "").split("__")[0] ?? ""
  if (field === "metrics" || field === "metrics_secondary") {
    const [, at, rest = detail] = /^Invalid metric at index (\d+): (.*)$/s.exec(detail) ?? []
    const metric = draft.metrics.filter(({ role }) => (role === "primary") === (field === "metrics"))[Number(at)]
    return metric === undefined ? ["metrics", detail] : [`metric ${metric.id}`, rest]
  }
  if (field === "parameters") return [/variant/i.test(detail) ? "variants" : "rollout", detail]
  if (field === "" && /stats method|baseline_variant_key/.test(detail)) return ["level", detail]
  if (field === "" && /^Feature flag/.test(detail)) return ["key", detail]
  return [PLACES[field] ?? field, detail]
}
