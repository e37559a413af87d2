// What a list of experiments asks for, and the orders that only the stored results know.

import type { Query, Schemas } from "../api/client"
import { counted, visible } from "../lib/format"
import { shippedOf } from "./decision"
import { type BaselineRow, boundsOf, certaintyOf, effectOf, meanOf, type VariantRow, WITHHELD } from "./reading"

export type Experiment = Schemas["ExperimentOut"]
export type Summary = Schemas["ResultSummaryOut"]

export const PAGE = 50
/** The server sorts by what it stores of an experiment; by results the page does, of so many that match. */
export const MOST_SORTED = 1000
const SUMMARIES = 100
const BY_RESULTS = ["people", "verdict", "effect", "certainty"] as const

export interface Best {
  row: VariantRow
  baseline: BaselineRow
  bounds: readonly [number, number]
  effect: number
  /** Of how many variants with a result it is the best. */
  of: number
}

/** The variant of the first primary metric whose effect is largest in the wanted direction. */
export function bestOf(summary: Summary): Best | null {
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
  const best = found.sort((a, b) => sign * (b.effect - a.effect))[0]
  return best ? { ...best, of: found.length } : null
}

const WIDEST = 3

/** Where the axis ends that rows share: at their largest bound, unless a few wide intervals would flatten all others. */
export function sharedLimit(bounds: readonly (readonly [number, number])[]): number {
  const sizes = bounds.map(([low, high]) => Math.max(Math.abs(low), Math.abs(high))).filter((size) => Number.isFinite(size) && size > 0).sort((a, b) => a - b)
  const largest = sizes.at(-1) ?? 1
  const middle = sizes[Math.floor((sizes.length - 1) / 2)] ?? largest
  return Math.max(0.01, Math.min(largest, WIDEST * middle)) * 1.06
}

export interface VerdictWords {
  /** Whether somebody has to do something now. */
  needs: boolean
  words: string
}

/** What a list says of the verdict, and whether the experiment waits for somebody; null: nothing is known. */
export function verdictWords(experiment: Experiment, summary: Summary | undefined): VerdictWords | null {
  const verdict = summary?.verdict
  if (!verdict) return summary?.withholds_decisions ? { needs: true, words: "Groups not comparable" } : null
  const { code, variant } = verdict.next_action
  const name = visible((variant ?? summary.statistics.baseline ?? "").slice(0, 80))
  const isOver = Boolean(experiment.end_date)
  const isDone = isOver && (Boolean(experiment.conclusion) || experiment.archived || shippedOf(experiment) !== null)
  const needs = !isDone
  switch (code) {
    case "ship_variant":
      return { needs, words: `Better: ship ${name}` }
    case "choose_variant":
      return { needs, words: "Several are better: choose one" }
    case "keep_baseline":
      return { needs, words: `Worse: keep ${name}` }
    case "weigh":
      return { needs, words: "Better and worse: weigh it" }
    case "stop":
      return { needs, words: "No clear difference" }
    case "stop_for_harm":
      return { needs, words: "Does harm: stop" }
    case "fix_assignment":
      return { needs, words: "Groups not comparable" }
    case "fix_exposures":
      return { needs, words: "Exposures need a look" }
    case "fix_flag":
      return { needs, words: "The flag needs a look" }
    case "fix_metric":
      return { needs, words: "A metric needs a look" }
    case "fix":
      return { needs, words: "Needs a look" }
    case "add_metric":
      return { needs, words: "Has no primary metric" }
    case "write_plan":
      return { needs, words: "Nobody said how long" }
    default:
      return { needs: false, words: progressText(verdict.numbers) }
  }
}

function progressText({ days, days_needed: planned }: { days: number; days_needed: number | null }): string {
  return planned === null ? `Too early, after ${counted(days, "day")}` : `Too early: day ${days + 1} of ${Math.max(planned, days + 1)}`
}

/** The hour of a count that is not of just now. */
export function countedAt(summary: Summary): string | null {
  return summary.is_fresh ? null : (summary.as_of ?? null)
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

function figure(experiment: Experiment, summary: Summary | undefined, column: string): number | null {
  if (summary === undefined) return null
  if (column === "verdict") {
    const said = verdictWords(experiment, summary)
    return said && Number(said.needs)
  }
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
    .map((each) => ({ each, value: figure(each, summaries.get(each.id), column) }))
    .sort((a, b) => (a.value === null || b.value === null ? Number(a.value === null) - Number(b.value === null) : sign * (a.value - b.value)))
    .map(({ each }) => each)
}

/** What has to be looked at before anything else of a row is read; a count that may be old is no reason. */
export function warningOf(experiment: Pick<Experiment, "status">, summary: Summary | undefined): string | null {
  return experiment.status === "running" && summary?.is_fresh && summary.people === 0 ? "no people yet" : null
}
