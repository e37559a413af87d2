// A metric while it is edited: the draft, what it is on the wire, and what it still lacks.

import { type PropertyDraft, propertyOf, wireOfProperty } from "../../filters/property"
import { general } from "../../lib/format"
import { type Json, list, object, text } from "../../lib/loose"
import { nodeName } from "../definition"

/** The types of metrics: on the wire, as a name, and what each measures. */
export const TYPES = [
  ["funnel", "Conversion", "The share of people who do something, or several things one after the other."],
  ["mean", "Mean per person", "How often people do something, or how much of it: orders, revenue."],
  ["ratio", "Ratio", "One total divided by another: revenue per order."],
  ["retention", "Retention", "The share of people who come back."],
  ["quantile", "Percentile", "The median, or how slow the slowest are."],
] as const
export type Type = (typeof TYPES)[number][0]
export const ROLES = [["primary", "Primary"], ["guardrail", "Guardrail"], ["secondary", "Secondary"]] as const
export type Role = (typeof ROLES)[number][0]
export const UNITS = ["minute", "hour", "day", "week", "month"] as const

/** How a person's events become one value: the key on the wire, the words, and what it needs besides. */
export const MATHS = [
  ["total", "the number of events", ""],
  ["sum", "the sum of a property", "property"],
  ["avg", "the average of a property", "property"],
  ["min", "the smallest value of a property", "property"],
  ["max", "the largest value of a property", "property"],
  ["unique_session", "the number of sessions", ""],
  ["dau", "people with at least one", ""],
  ["unique_group", "the number of groups", "group"],
  ["hogql", "an expression", "expression"],
] as const

export interface SourceDraft {
  /** `EventsNode`, `ActionsNode`, or another kind that is kept as it is. */
  kind: string
  event: string
  action: string
  math: string
  /** The property, group type or expression that the maths needs. */
  of: string
  properties: readonly PropertyDraft[]
  rest: Json
}

export interface MetricDraft {
  /** Tells metrics of one draft apart. */
  id: string
  uuid: string | null
  type: Type
  role: Role
  /** The loss that a guardrail allows, in percent. */
  margin: string
  name: string
  goal: string
  /** The one source, the steps, numerator and denominator, or start and completion. */
  sources: readonly SourceDraft[]
  window: string
  windowUnit: string
  order: string
  threshold: string
  /** Percentiles at which outliers are cut, of the value or the numerator, and of the denominator. */
  low: string
  high: string
  highOfDenominator: string
  ignoreZeros: boolean
  level: string
  ofEvents: boolean
  from: string
  to: string
  unit: string
  startHandling: string
  /** What the wire has besides, kept as it is. */
  rest: Json
}

export const NO_SOURCE: SourceDraft = { kind: "EventsNode", event: "", action: "", math: "total", of: "", properties: [], rest: {} }

let made = 0

export function newMetric(type: Type, role: Role): MetricDraft {
  made += 1
  return {
    id: `new-${made}-${Math.random().toString(36).slice(2, 8)}`, uuid: null, type, role, margin: "", name: "", goal: "increase", sources: retyped(type, []), window: "", windowUnit: "day", order: "ordered", threshold: "",
    low: "", high: "", highOfDenominator: "", ignoreZeros: false, level: "90", ofEvents: false, from: "1", to: "7", unit: "day", startHandling: "first_seen", rest: {},
  }
}

/** The sources that a metric of a type has, as far as they are there already. */
export function retyped(type: Type, sources: readonly SourceDraft[]): SourceDraft[] {
  const count = type === "ratio" || type === "retention" ? 2 : type === "funnel" ? Math.max(1, sources.length) : 1
  return Array.from({ length: count }, (_, at) => sources[at] ?? NO_SOURCE)
}

const OF_MATH: Record<string, string> = { property: "math_property", group: "math_group_type_index", expression: "math_hogql" }

export function needsOf(math: string): string {
  return MATHS.find(([key]) => key === math)?.[2] ?? ""
}

function sourceOf(node: unknown): SourceDraft {
  const { kind, event, id, math, math_property: property, math_group_type_index: group, math_hogql: expression, properties, ...rest } = object(node)
  const found = text(math) ?? "total"
  const of = { property, group, expression, "": "" }[needsOf(found)]
  return { kind: text(kind) ?? "EventsNode", event: text(event) ?? "", action: id === undefined ? "" : String(id), math: found, of: String(of ?? ""), properties: list(properties).map(propertyOf), rest }
}

function wireOfSource({ kind, event, action, math, of, properties, rest }: SourceDraft, counts: boolean): Json {
  if (kind !== "EventsNode" && kind !== "ActionsNode") return { ...rest, kind, ...(counts && maths(math, of)), ...(properties.length > 0 && { properties: properties.map(wireOfProperty) }) }
  const of_ = kind === "EventsNode" ? { event: event.trim() || null } : { id: Number(action) }
  return { ...rest, kind, ...of_, ...(counts && maths(math, of)), ...(properties.length > 0 && { properties: properties.map(wireOfProperty) }) }
}

function maths(math: string, of: string): Json {
  const needed = needsOf(math)
  if (math === "total") return {}
  return { math, ...(needed && { [OF_MATH[needed] ?? ""]: needed === "group" ? Number(of) : of.trim() }) }
}

const fraction = (value: unknown) => (typeof value === "number" ? String(Number((value * 100).toPrecision(10))) : "")
const number = (value: unknown) => (typeof value === "number" ? String(value) : "")
const share = (percent: string) => Number((Number(percent) / 100).toPrecision(10))

/** A stored metric as a draft. */
export function metricDraftOf(stored: Json, role: Role): MetricDraft {
  const {
    kind: _kind, uuid, metric_type: type, name, goal, role: _role, margin, conversion_window: window, conversion_window_unit: windowUnit, source, series, numerator, denominator, start_event: start, completion_event: completion,
    funnel_order_type: order, threshold, lower_bound_percentile: low, upper_bound_percentile: high, ignore_zeros: ignoreZeros, numerator_outlier_handling: top, denominator_outlier_handling: bottom, quantile_level: level, quantile_unit: unitOf,
    retention_window_start: from, retention_window_end: to, retention_window_unit: unit, start_handling: startHandling, fingerprint: _fingerprint, ...rest
  } = stored
  const kind = TYPES.find(([key]) => key === type)?.[0] ?? "mean"
  const nodes = { mean: [source], quantile: [source], funnel: list(series), ratio: [numerator, denominator], retention: [start, completion] }[kind]
  const cut = kind === "ratio" ? object(top) : { lower_bound_percentile: low, upper_bound_percentile: high, ignore_zeros: ignoreZeros }
  return {
    ...newMetric(kind, role), id: text(uuid) ?? newMetric(kind, role).id, uuid: text(uuid), margin: fraction(margin), name: text(name) ?? "", goal: goal === "decrease" ? "decrease" : "increase", sources: nodes.map(sourceOf), window: number(window),
    windowUnit: text(windowUnit) ?? "day", order: text(order) ?? "ordered", threshold: number(threshold), low: fraction(cut.lower_bound_percentile), high: fraction(cut.upper_bound_percentile), highOfDenominator: fraction(object(bottom).upper_bound_percentile),
    ignoreZeros: cut.ignore_zeros === true, level: fraction(level) || "90", ofEvents: unitOf === "event", from: number(from) || "1", to: number(to) || "7", unit: text(unit) ?? "day", startHandling: text(startHandling) ?? "first_seen", rest,
  }
}

/** A draft as the API takes it. */
export function wireOfMetric(draft: MetricDraft): Json {
  const { type, sources, role } = draft
  const counts = type !== "funnel" && type !== "retention"
  const [first, second] = sources.map((source) => wireOfSource(source, counts))
  const cut = { ...(draft.low && { lower_bound_percentile: share(draft.low) }), ...(draft.high && { upper_bound_percentile: share(draft.high) }), ...(draft.ignoreZeros && { ignore_zeros: true }) }
  const own: Record<Type, () => Json> = {
    mean: () => ({ source: first, ...cut, ...(draft.threshold && { threshold: Number(draft.threshold) }) }),
    quantile: () => ({ source: first, quantile_level: share(draft.level), ...(draft.ofEvents && { quantile_unit: "event" }), ...(draft.ignoreZeros && { ignore_zeros: true }) }),
    funnel: () => ({ series: sources.map((source) => wireOfSource(source, false)), ...(draft.order !== "ordered" && { funnel_order_type: draft.order }) }),
    ratio: () => ({
      numerator: first, denominator: second, ...(Object.keys(cut).length > 0 && { numerator_outlier_handling: cut }),
      ...(draft.highOfDenominator && { denominator_outlier_handling: { upper_bound_percentile: share(draft.highOfDenominator) } }),
    }),
    retention: () => ({ start_event: first, completion_event: second, retention_window_start: Number(draft.from), retention_window_end: Number(draft.to), retention_window_unit: draft.unit, start_handling: draft.startHandling }),
  }
  return {
    ...draft.rest, kind: "ExperimentMetric", ...(draft.uuid && { uuid: draft.uuid }), metric_type: type, name: draft.name.trim() || nameOf(draft), goal: draft.goal, ...own[type](),
    ...(draft.window && { conversion_window: Number(draft.window), conversion_window_unit: draft.windowUnit }),
    ...(role === "guardrail" && { role: "guardrail", margin: draft.margin ? share(draft.margin) : 0 }),
  }
}

/** What a source counts, as a word: the event's name, or "any event". */
export function sourceName(source: SourceDraft, actions: ReadonlyMap<string, string> = new Map()): string {
  if (source.kind === "ActionsNode") return actions.get(source.action) ?? (source.action ? `action ${source.action}` : "…")
  if (source.kind !== "EventsNode") return nodeName({ ...source.rest, kind: source.kind })
  return text(source.rest.custom_name) ?? (source.event.trim() || "any event")
}

/** The name that a metric has while nobody gives it one. */
export function nameOf({ type, sources, from, to, unit, level }: MetricDraft): string {
  const [first = NO_SOURCE, second = NO_SOURCE] = sources
  const name = sourceName(sources.at(-1) ?? NO_SOURCE)
  const value = (source: SourceDraft) => ({ total: sourceName(source), sum: `sum of ${source.of || "…"}`, avg: `average ${source.of || "…"}`, min: `least ${source.of || "…"}`, max: `largest ${source.of || "…"}` })[source.math] ?? sourceName(source)
  switch (type) {
    case "funnel":
      return `Conversion to ${name}`
    case "mean":
      return first.math === "total" ? `${sourceName(first)} per person` : `${value(first)} per person`
    case "ratio":
      return `${value(first)} per ${value(second)}`
    case "retention":
      return `Back with ${name} after ${from}–${to} ${unit}s`
    case "quantile":
      return level === "50" ? `Median of ${value(first)}` : `p${general(Number(level), 6)} of ${value(first)}`
  }
}

/** What a metric lacks before it can be saved; null: nothing. */
export function problemOfMetric(draft: MetricDraft): string | null {
  const { type, sources } = draft
  for (const source of sources) {
    if (source.kind === "ActionsNode" && source.action === "") return "Choose an action."
    if (type !== "funnel" && type !== "retention" && needsOf(source.math) && source.of.trim() === "") return `Say which ${needsOf(source.math) === "group" ? "group type" : needsOf(source.math)} counts.`
    if (source.properties.some(({ key, type: kind }) => key.trim() === "" && kind !== "cohort")) return "A filter has no property yet."
  }
  const [first] = sources
  if (type === "mean" && first?.kind === "EventsNode" && first.event.trim() === "" && first.math === "total" && first.properties.length === 0) return "Name the event that counts."
  if (type !== "mean" && sources.some((source) => source.kind === "EventsNode" && source.event.trim() === "" && source.properties.length === 0 && source.math === "total")) return type === "funnel" ? "Name the event of each step." : "Name both events."
  if (draft.window && !isWhole(draft.window)) return "The window is a whole number, or empty."
  if (type === "retention" && !(isWhole(draft.from, 0) && isWhole(draft.to) && Number(draft.to) >= Number(draft.from))) return "The window of a return has two whole numbers, the smaller one first."
  if ([draft.low, draft.high, draft.highOfDenominator].some((percentile) => percentile && !(Number(percentile) >= 0 && Number(percentile) <= 100))) return "Percentiles are numbers from 0 to 100."
  if (type === "quantile" && !(Number(draft.level) > 0 && Number(draft.level) < 100)) return "The percentile is a number between 0 and 100."
  if (draft.threshold && !Number.isFinite(Number(draft.threshold))) return "The threshold is a number, or empty."
  if (draft.role === "guardrail" && draft.margin && !(Number(draft.margin) >= 0 && Number(draft.margin) < 100)) return "The margin is a number of percent from 0 to below 100."
  return null
}

const isWhole = (written: string, least = 1) => /^\d+$/.test(written.trim()) && Number(written) >= least
