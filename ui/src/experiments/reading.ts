// Results as rows of a table: every figure that the page shows and the API does not name itself, as a pure function.

import type { Schemas } from "../api/client"
import { effectText, type EffectStyle, levelText, meanText, MISSING, numberText, percentText, pText } from "../lib/format"

export type Results = Schemas["ExperimentResultsOut"]
export type Metric = Schemas["MetricOut"]
export type Verdict = Schemas["VerdictOut"]
export type BaselineRow = Schemas["BaselineRowOut"]
export type VariantRow = Schemas["VariantRowOut"]
export type Statistics = Schemas["StatisticsOut"]
export type Tone = "better" | "worse" | "unclear"

export interface Reading {
  key: string
  place: number
  people: string
  value: string
  /** The change against the baseline in words; of the baseline and without statistics null. */
  change: string | null
  certainty: string | null
  effect: number | null
  bounds: readonly [number, number] | null
  tone: Tone
  isBaseline: boolean
  /** Why there is no result. */
  problem: string | null
  row: BaselineRow
}

export const WITHHELD = "withheld"
const PROBLEMS: Record<string, string> = {
  "not-enough-exposures": "Too few people: statistics need at least 50 in each variant.",
  "not-enough-metric-data": "Too few people have done this yet.",
  "baseline-mean-is-zero": "The baseline's value is zero, so there is no relative change.",
}

export function isShare(metric: Metric): boolean {
  return metric.metric_type === "funnel" || metric.metric_type === "retention"
}

export function styleOf(metric: Metric, statistics: Statistics): EffectStyle {
  return { relative: statistics.difference_type === "relative", isShare: isShare(metric) }
}

/** What a metric says of a variant: its mean, rate, ratio or quantile. */
export function meanOf(type: string | null, row: BaselineRow): number | null {
  if (type === "quantile") return row.number_of_samples ? (row.quantile ?? null) : null
  const divisor = type === "ratio" || type === "retention" ? row.denominator_sum : row.number_of_samples
  return divisor && row.sum !== null ? row.sum / divisor : null
}

/** An interval; a side without a bound, null on the wire, is infinite. */
export function boundsOf(row: VariantRow): readonly [number, number] | null {
  const interval = row.method === "bayesian" ? row.credible_interval : row.confidence_interval
  if (!interval) return null
  const [low, high] = interval
  if (typeof row.point_estimate === "number") return [low ?? -Infinity, high ?? Infinity]
  return typeof low === "number" && typeof high === "number" ? [low, high] : null
}

/** The estimate: of results stored before it was, the middle of the interval. */
export function effectOf(row: VariantRow): number | null {
  const bounds = boundsOf(row)
  return bounds && (row.point_estimate ?? (bounds[0] + bounds[1]) / 2)
}

export function certaintyOf(row: VariantRow, withheld: boolean): string {
  if (withheld && boundsOf(row)) return WITHHELD
  if (row.method === "bayesian") return typeof row.chance_to_win === "number" ? percentText(row.chance_to_win) : MISSING
  const p = row.adjusted_p_value ?? row.p_value
  return typeof p === "number" ? pText(p) : MISSING
}

export function problemText(codes: readonly string[]): string | null {
  return codes.length === 0 ? null : codes.map((code) => PROBLEMS[code] ?? code).join(" ")
}

/** A change in words. Of a negative baseline a rise is a negative share, so the baseline is named beside it. */
export function changeText(effect: number, style: EffectStyle, baseline: number | null): string {
  const text = effectText(effect, style)
  return style.relative && baseline !== null && baseline < 0 && effect !== 0 ? `${text} of ${numberText(baseline)}` : text
}

/** Why a row has no statistics, as the server says it. */
export function sentence(problem: string | null | undefined): string | null {
  return problem ? `${problem.charAt(0).toUpperCase()}${problem.slice(1)}.` : null
}

/** What the verdict decides of one variant on one metric. While something critical stands nothing is better or worse. */
export function toneOf(verdict: Verdict | null, metricUuid: string | null, variant: string): Tone {
  if (verdict === null || verdict.withholds_decisions) return "unclear"
  const decided = verdict.metrics.find((each) => each.metric_uuid === metricUuid)?.variants.find((each) => each.variant === variant)
  return decided?.decision === "better" || decided?.decision === "worse" ? decided.decision : "unclear"
}

/** Whether certainty of a metric is to be hidden: something critical is wrong, with the experiment or with it. */
export function isWithheld(results: Results, metricUuid: string | null): boolean {
  if (results.verdict?.withholds_decisions || results.health?.status === "critical") return true
  const decided = results.verdict?.metrics.find((each) => each.metric_uuid === metricUuid)
  return decided?.variants.some((each) => each.decision === "withheld") ?? false
}

/** The rows of one metric: the baseline, then the others. */
export function readingsOf(results: Results, metric: Metric, places: ReadonlyMap<string, number>): Reading[] {
  if (metric.result === null) return []
  const { baseline, variant_results: others } = metric.result
  const style = styleOf(metric, results.statistics)
  const withheld = isWithheld(results, metric.uuid)
  const common = (row: BaselineRow) => ({
    key: row.key,
    place: places.get(row.key) ?? places.size,
    people: numberText(row.number_of_samples),
    value: meanText(meanOf(metric.metric_type, row), isShare(metric)),
    row,
  })
  const first: Reading = {
    ...common(baseline),
    change: null, certainty: null, effect: null, bounds: null, tone: "unclear", isBaseline: true,
    problem: problemText(baseline.validation_failures),
  }
  return [first, ...others.map((row): Reading => {
    const bounds = boundsOf(row)
    const effect = effectOf(row)
    return {
      ...common(row),
      change: effect === null ? null : changeText(effect, style, meanOf(metric.metric_type, baseline)),
      certainty: certaintyOf(row, withheld),
      effect,
      bounds,
      // The verdict may be as of the planned end: what is no longer clear by now is not marked.
      tone: withheld || row.significant !== true ? "unclear" : toneOf(results.verdict, metric.uuid, row.key),
      isBaseline: false,
      problem: bounds ? null : (sentence(row.problem) ?? problemText(row.validation_failures) ?? first.problem),
    }
  })]
}

/** The bounds of all intervals of the page, from which the shared axis is made. */
export function allBounds(results: Results): number[] {
  return results.metrics.flatMap((metric) => (metric.result?.variant_results ?? []).flatMap((row) => boundsOf(row) ?? []))
}

/** The places of variants, from which their colours come: the baseline first. */
export function placesOf(baseline: string | null, keys: readonly string[]): Map<string, number> {
  const ordered = [...keys].sort((a, b) => Number(b === baseline) - Number(a === baseline))
  return new Map(ordered.map((key, at) => [key, at]))
}

/** How the numbers are made, in sentences. */
export function methodTexts(statistics: Statistics): string[] {
  const level = levelText(statistics.level)
  const relative = statistics.difference_type === "relative"
  const said = [
    statistics.method === "bayesian"
      ? `Bayesian: the chance to win is the probability of being above the baseline; an interval contains the effect with ${level} probability.`
      : statistics.is_sequential
        ? `Frequentist, sequential: p-values and ${level} intervals are valid at every look.`
        : statistics.design === "group_sequential"
        ? `Frequentist, group sequential: the table shows p-values and ${level} intervals of a single look; the verdict decides at planned analyses, by stricter ones.`
        : statistics.design === "hybrid"
        ? `Frequentist, hybrid: the table shows p-values and ${level} intervals of a single look; the verdict decides by stricter ones, which are valid at any time until the planned end, and once there.`
        : `Frequentist: two-sided p-values and ${level} intervals for a single look at the planned end.`,
    relative ? "Changes are relative: shares of the baseline's value." : "Changes are absolute: differences from the baseline's value.",
  ]
  if (statistics.correction !== "none") said.push(`p-values of primary metrics are corrected for their number (${correctionName(statistics.correction)}); intervals are not.`)
  else if (statistics.method === "frequentist") said.push("p-values are not corrected for the number of metrics.")
  if (statistics.posthog_numbers) said.push("p-values and intervals are PostHog's: of a sparse metric, or of a small group beside a large one, they are wrong more often than they say.")
  if (statistics.cuped) said.push("CUPED: effects are adjusted by people's earlier behaviour; values are as measured.")
  return said
}

function correctionName(correction: Statistics["correction"]): string {
  return { none: "none", bonferroni: "Bonferroni", holm: "Holm", "benjamini-hochberg": "Benjamini–Hochberg" }[correction]
}

/** Conversion of each step of a funnel, from the step before and from the start. */
export interface StepReading {
  step: number
  name: string
  variants: { key: string; place: number; count: number; ofAll: number; ofBefore: number | null; people: number }[]
}

export function funnelSteps(readings: readonly Reading[], names: readonly string[]): StepReading[] {
  const length = Math.max(0, ...readings.map((each) => each.row.step_counts?.length ?? 0))
  const step = (at: number): StepReading => ({
    step: at,
    name: at === 0 ? "Exposed" : (names[at - 1] ?? `Step ${at}`),
    variants: readings.map(({ key, place, row }) => {
      const people = row.number_of_samples
      const reached = (index: number) => (index === 0 ? people : (row.step_counts?.[index - 1] ?? 0))
      const [count, before] = [reached(at), at > 0 ? reached(at - 1) : 0]
      return { key, place, count, people, ofAll: people ? count / people : 0, ofBefore: at > 0 && before > 0 ? count / before : null }
    }),
  })
  return length === 0 ? [] : Array.from({ length: length + 1 }, (_, at) => step(at))
}

/** Variance of one variant's values, from its sums; null with fewer than two people. */
export function varianceOf(row: BaselineRow): number | null {
  const { number_of_samples: n, sum, sum_squares: squares } = row
  if (n < 2 || sum === null || squares === null) return null
  return Math.max(0, (squares - (sum * sum) / n) / (n - 1))
}
