// What a list of experiments asks for, and the orders that only the stored results know.

import type { Query, Schemas } from "../api/client"
import { type BaselineRow, boundsOf, certaintyOf, effectOf, meanOf, type VariantRow, WITHHELD } from "./reading"

export type Experiment = Schemas["ExperimentOut"]
export type Summary = Schemas["ResultSummaryOut"]

export const PAGE = 50
/** The server sorts by what it stores of an experiment; by results the page does, of so many that match. */
export const MOST_SORTED = 1000
const SUMMARIES = 100
const BY_RESULTS = ["people", "effect", "certainty"] as const

/** The variant of the first primary metric whose effect is largest in the wanted direction. */
export function bestOf(summary: Summary): { row: VariantRow; baseline: BaselineRow; bounds: readonly [number, number]; effect: number } | null {
  if (!summary.metric?.result) return null
  const { baseline, variant_results: others } = summary.metric.result
  // Of a negative baseline a relative effect is negative where the value rises.
  const isTurned = summary.statistics.difference_type === "relative" && (meanOf(summary.metric.metric_type, baseline) ?? 0) < 0
  const sign = (summary.metric.goal === "decrease") === isTurned ? 1 : -1
  const found = others.flatMap((row) => {
    const bounds = boundsOf(row)
    const effect = effectOf(row)
    return bounds && effect !== null ? [{ row, baseline, bounds, effect }] : []
  })
  return found.sort((a, b) => sign * (b.effect - a.effect))[0] ?? null
}

/** The order after a click on a column: texts begin upwards, numbers with the largest; the next click turns it round. */
export function nextOrder(order: string, column: string, largestFirst: boolean): string {
  const first = largestFirst ? `-${column}` : column
  return order === first ? (largestFirst ? column : `-${column}`) : first
}

export function sortsHere(order: string): boolean {
  return (BY_RESULTS as readonly string[]).includes(order.replace("-", ""))
}

/** The query of a list, as the address has it. */
export function listQuery(query: URLSearchParams, order: string, me: number | undefined): Query {
  const of = (name: string) => query.get(name) ?? ""
  const by = of("by")
  const page = sortsHere(order) ? { limit: MOST_SORTED } : { limit: PAGE, offset: Number(of("offset")) || 0, order }
  return { ...page, search: of("search"), status: of("status"), archived: of("archived"), created_by_id: by === "me" ? me : by }
}

/** Ids of experiments in as few requests as the API allows. */
export function chunksOf(ids: readonly number[]): string[] {
  return Array.from({ length: Math.ceil(ids.length / SUMMARIES) }, (_, at) => ids.slice(at * SUMMARIES, (at + 1) * SUMMARIES).join(","))
}

function figure(summary: Summary | undefined, column: string): number | null {
  if (summary === undefined) return null
  if (column === "people") return summary.people
  const best = bestOf(summary)
  if (best === null) return null
  if (column === "effect") return best.effect
  if (certaintyOf(best.row, summary.withholds_decisions) === WITHHELD) return null
  const { chance_to_win: chance, adjusted_p_value: adjusted, p_value: p } = best.row
  return chance ?? (adjusted ?? p ?? null)
}

/** Experiments by a figure of their results; those without one are last, whatever the direction. */
export function sorted(experiments: readonly Experiment[], summaries: ReadonlyMap<number, Summary>, order: string): Experiment[] {
  const column = order.replace("-", "")
  const sign = order.startsWith("-") ? -1 : 1
  return experiments
    .map((each) => ({ each, value: figure(summaries.get(each.id), column) }))
    .sort((a, b) => (a.value === null || b.value === null ? Number(a.value === null) - Number(b.value === null) : sign * (a.value - b.value)))
    .map(({ each }) => each)
}

/** What has to be looked at before anything else of a row is read. */
export function warningOf(experiment: Pick<Experiment, "status">, summary: Summary | undefined): string | null {
  if (summary?.withholds_decisions) return "groups not comparable"
  return experiment.status === "running" && summary?.people === 0 ? "no people yet" : null
}

/** Who made the experiments that were seen, by their ids. */
export function makersOf(experiments: readonly Experiment[]): [string, string][] {
  const found = new Map<string, string>()
  for (const { created_by: maker } of experiments) if (maker) found.set(String(maker.id), String(maker.first_name || maker.email || `user ${maker.id}`))
  return [...found]
}
