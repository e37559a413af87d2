// A draft in words: the sentence beside the form, and the lines in which two states differ.

import { conditionTexts } from "../../lib/conditions"
import { counted, countText, visible } from "../../lib/format"
import { wireOfProperty } from "../../filters/property"
import { definitionTexts } from "../definition"
import { baselineOf, type Draft, METHODS, type Planned } from "./draft"
import { type MetricDraft, nameOf, sourceName, wireOfMetric } from "./metric"

export function listed(words: readonly string[], last = "and"): string {
  return words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} ${last} ${words.at(-1) ?? ""}`
}

const quoted = (name: string) => `“${visible(name.slice(0, 60))}”`
export const metricName = (metric: MetricDraft) => metric.name.trim() || nameOf(metric)

/** Who may take part: "25% of people where plan is pro". */
export function whoText(draft: Draft): string {
  const where = whereText(draft)
  const who = where ? `people where ${where}` : "everyone"
  return draft.rollout.trim() === "100" ? who : `${draft.rollout}% of ${who}`
}

function whereText({ conditions }: Draft): string {
  return conditionTexts(conditions.map(wireOfProperty)).join(" and ")
}

/** Who is met by what and gets which variant, as one sentence. */
function meetingText(draft: Draft, actions: ReadonlyMap<string, string>, variants: string): string {
  const met = metText(draft, actions)
  const where = draft.isLinked ? "" : whereText(draft)
  const some = draft.isLinked || draft.rollout.trim() === "100" ? "" : `${draft.rollout}% of the people`
  if (draft.isLinked) return `People whom the flag reaches and who ${met} get ${variants}.`
  if (some === "" && where === "") return `Everyone who ${met.replace(/^(reach|do)/, (verb) => (verb === "do" ? "does" : "reaches"))} gets ${variants}.`
  return `${some || "People"} who ${met}${where ? `, where ${where},` : ""} get ${variants}.`
}

/** By what people are met: "do “signed up”". */
export function metText({ exposure, exposureEvent, exposureAction, key }: Draft, actions: ReadonlyMap<string, string>): string {
  if (exposure === "EventsNode") return `do ${quoted(exposureEvent || "…")}`
  if (exposure === "ActionsNode") return `do the action ${quoted(actions.get(exposureAction) ?? (exposureAction || "…"))}`
  return `reach code that asks for ${quoted(key || "…")}`
}

export function lengthText(plan: Planned | null): string | null {
  if (plan === null || (plan.days === null && plan.people === null)) return null
  const parts = [plan.days === null ? null : counted(plan.days, "day"), plan.people === null ? null : counted(plan.people, "person", "people")]
  return parts.filter(Boolean).join(" and ")
}

/** The plan that is saved: what somebody wrote, else what the planner recommends. */
export function plannedOf({ days, people }: Draft, plan: Planned | null): Planned {
  return { days: Number(days) || (plan?.days ?? null), people: Number(people) || (plan?.people ?? null) }
}

/** The whole experiment in a few sentences. */
export function summaryOf(draft: Draft, plan: Planned | null, actions: ReadonlyMap<string, string>): string[] {
  const baseline = baselineOf(draft)
  const variants = draft.variants.map(({ key, share }) => `${quoted(key || "…")} ${share}%`)
  const sentences = [meetingText(draft, actions, listed(variants, "or"))]
  const by = (role: string) => [...draft.metrics.filter((metric) => metric.role === role).map((metric) => quoted(metricName(metric))), ...draft.shared.filter((metric) => metric.role === role).map((metric) => quoted(metric.name))]
  const [primary, guardrails] = [by("primary"), by("guardrail")]
  if (primary.length === 0) sentences.push("Nothing decides it yet: add a primary metric.")
  else sentences.push(`A variant ships when it does better than ${quoted(baseline)} in ${listed(primary, "or")}${guardrails.length ? ` and does not harm ${listed(guardrails)}` : ""}.`)
  const length = lengthText(plannedOf(draft, plan))
  if (draft.method === "sequential") sentences.push(length === null ? "Its verdict may be acted on at any time." : `Its verdict may be acted on at any time, and comes after ${length} at the latest.`)
  else if (draft.method === "hybrid" || draft.method === "group_sequential") sentences.push(`${draft.method === "hybrid" ? "It may end at any time if a difference is very clear" : `It is analysed ${draft.analyses || "4"} times, and may end at each`}${length === null ? "." : `; its last verdict comes after ${length}.`}`)
  else sentences.push(length === null ? "Nobody has planned yet when it ends." : `Its verdict comes after ${length}.`)
  if (draft.pausesOnHarm) sentences.push("The server pauses it as soon as a variant is certainly worse.")
  return sentences
}

/** How a change of a launched experiment is to be taken. */
export type Kind = "safe" | "phase" | "amends"

/** The lines of a draft by their labels, for comparisons. */
export function linesOf(draft: Draft, actions: ReadonlyMap<string, string>): Map<string, string> {
  const lines: [string, string][] = [
    ["Name", draft.name], ["Hypothesis", draft.hypothesis], ["Flag", draft.key], ["Variants", draft.variants.map(({ key, share }) => `${key} ${share}%`).join(", ")], ["Takes part", whoText(draft)], ["Kept at log-in", draft.persists ? "yes" : "no"],
    ["Holdout", draft.holdout], ["Counted from", `${metText(draft, actions)}${draft.exposureProperties.length ? ` where ${conditionTexts(draft.exposureProperties.map(wireOfProperty)).join(" and ")}` : ""}`], ["Test accounts", draft.filtersTestAccounts ? "left out" : "counted"],
    ["Several variants", draft.several === "first_seen" ? "the first one counts" : "left out"], ["Decides", METHODS.find(([key]) => key === draft.method)?.[1] ?? draft.method], ["Analyses", draft.method === "group_sequential" ? draft.analyses : ""], ["Certainty", `${draft.level}%`], ["Effects", draft.relative ? "relative" : "absolute"], ["Baseline", baselineOf(draft)],
    ["Correction", draft.correction], ["CUPED", draft.cuped ? "on" : "off"], ["Pause on harm", draft.pausesOnHarm ? "yes" : "no"], ["Smallest effect", draft.effect && `${draft.effect}%`], ["Planned days", draft.days], ["Planned people", draft.people && countText(Number(draft.people))],
  ]
  const seen = new Map<string, number>()
  const label = (name: string) => {
    const count = (seen.get(name) ?? 0) + 1
    seen.set(name, count)
    return count === 1 ? name : `${name} (${count})`
  }
  for (const metric of draft.metrics) {
    const margin = metric.role === "guardrail" ? `, margin ${metric.margin || "0"}%` : ""
    const filters = metric.sources.flatMap((source) => source.properties.length ? [`${sourceName(source, actions)} where ${conditionTexts(source.properties.map(wireOfProperty)).join(" and ")}`] : [])
    lines.push([label(`Metric ${metricName(metric)}`), `${metric.role}${margin}. ${[...definitionTexts(wireOfMetric(metric)), ...filters].join(" ")}`])
  }
  for (const metric of draft.shared) lines.push([label(`Shared metric ${metric.name}`), metric.role])
  return new Map(lines.filter(([, words]) => words !== ""))
}

const SAFE = new Set(["Name", "Hypothesis", "Pause on harm", "Kept at log-in"])

/** What a change of one line means for a launched experiment. */
export function kindOf(label: string, before: Draft, after: Draft): Kind {
  if (label === "Variants") return "phase"
  if (label === "Takes part") return Number(after.rollout) >= Number(before.rollout) ? "safe" : "phase"
  const metric = [...before.metrics, ...after.metrics].find((each) => label.startsWith(`Metric ${metricName(each)}`))
  return SAFE.has(label) || metric?.role === "secondary" ? "safe" : "amends"
}
