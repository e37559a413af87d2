// An experiment and its metrics in words, from the JSON that describes them.

import { general } from "../lib/format"
import { type Json, list, object, text } from "../lib/loose"

const MATHS: Record<string, string> = {
  total: "the number of",
  sum: "the sum of",
  avg: "the average of",
  min: "the smallest",
  max: "the largest",
  unique_session: "the number of sessions with",
  unique_group: "the number of groups with",
  hogql: "the value of",
}

/** What an event source is called. */
export function nodeName(node: unknown): string {
  const found = object(node)
  const name = text(found.custom_name) ?? text(found.name) ?? text(found.event)
  if (name) return name
  if (found.kind === "ActionsNode") return `action ${String(found.id)}`
  return text(found.table_name) ?? "any event"
}

function measured(node: unknown): string {
  const found = object(node)
  const property = text(found.math_property) ?? text(found.math_hogql)
  const math = text(found.math) ?? "total"
  const filters = list(found.properties).length
  const only = filters ? `, with ${filters} ${filters === 1 ? "filter" : "filters"}` : ""
  if (property && text(found.math) === null) return `“${property}” of “${nodeName(node)}”${only}`
  const words = MATHS[math] ?? math
  return `${property ? `${words} “${property}” of “${nodeName(node)}”` : `${words} “${nodeName(node)}”`}${only}`
}

/** A metric of an experiment, inline or shared, by its identifier. */
export function metricDefinition(experiment: object, uuid: string | null): Json | null {
  const all = object(experiment)
  const shared = list(all.saved_metrics).map((link) => object(link.query))
  return [...list(all.metrics), ...list(all.metrics_secondary), ...shared].find((each) => each.uuid === uuid) ?? null
}

export function stepNames(definition: Json | null): string[] {
  return list(definition?.series).map(nodeName)
}

/** What a metric counts, in sentences. */
export function definitionTexts(definition: Json | null): string[] {
  if (!definition) return []
  const said: string[] = []
  const type = definition.metric_type
  if (type === "mean") said.push(`${capital(measured(definition.source))}, per person.`)
  else if (type === "quantile") said.push(`The ${ordinal(Number(definition.quantile_level ?? 0.5) * 100)} percentile of ${measured(definition.source)}.`)
  else if (type === "funnel") said.push(`The share of people who, after their exposure, complete ${stepNames(definition).map((step) => `“${step}”`).join(", then ")}.`)
  else if (type === "ratio") said.push(`${capital(measured(definition.numerator))}, divided by ${measured(definition.denominator)}.`)
  else if (type === "retention")
    said.push(`Of the people with “${nodeName(definition.start_event)}”, the share with “${nodeName(definition.completion_event)}” ${definition.retention_window_start} to ${counted(definition.retention_window_end, definition.retention_window_unit)} later.`)
  if (definition.funnel_order_type === "unordered") said.push("Steps count in any order.")
  if (definition.conversion_window !== undefined && definition.conversion_window !== null)
    said.push(`It counts within ${counted(definition.conversion_window, definition.conversion_window_unit ?? "day")} of the exposure.`)
  if (typeof definition.lower_bound_percentile === "number" || typeof definition.upper_bound_percentile === "number")
    said.push("Outliers are cut at percentiles.")
  said.push(definition.goal === "decrease" ? "Less is better." : "More is better.")
  return said
}

/** "1 day", "7 days". */
function counted(number: unknown, unit: unknown): string {
  return `${String(number)} ${String(unit)}${Number(number) === 1 ? "" : "s"}`
}

const ENDINGS: Partial<Record<Intl.LDMLPluralRule, string>> = { one: "st", two: "nd", few: "rd" }

/** "50th", "1st", "99.9th". */
function ordinal(value: number): string {
  const rule = Number.isInteger(value) ? new Intl.PluralRules("en", { type: "ordinal" }).select(value) : "other"
  return `${general(value, 6)}${ENDINGS[rule] ?? "th"}`
}

function capital(sentence: string): string {
  return sentence.charAt(0).toUpperCase() + sentence.slice(1)
}

/** Who takes part and how they are counted, in sentences. */
export function exposureTexts(experiment: object): string[] {
  const all = object(experiment)
  const criteria = object(all.exposure_criteria)
  const config = object(criteria.exposure_config)
  const own = text(config.event)
  return [
    own && own !== "$feature_flag_called"
      ? `People take part from their first “${own}” on.`
      : "People take part from the first time that the code asks for their variant.",
    criteria.filterTestAccounts ? "Internal and test accounts are left out." : "Internal and test accounts are counted.",
    criteria.multiple_variant_handling === "first_seen"
      ? "People who saw several variants count for the first one."
      : "People who saw several variants are left out.",
    ...(all.only_count_matured_users ? ["Only people whose windows have passed are counted."] : []),
  ]
}

export interface VariantShare {
  key: string
  name: string | null
  share: number | null
}

export function variantsOf(experiment: object): VariantShare[] {
  const flag = object(object(object(experiment).feature_flag).filters)
  const variants = list(object(flag.multivariate).variants)
  return variants.map((each) => ({
    key: String(each.key),
    name: text(each.name),
    share: typeof each.rollout_percentage === "number" ? each.rollout_percentage : null,
  }))
}
