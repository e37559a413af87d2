// Results as a table for spreadsheets, with all digits.

import { csvRow } from "../kit/saving"
import { boundsOf, effectOf, isWithheld, meanOf, type BaselineRow, type Metric, type Results, type VariantRow } from "./reading"

const HEAD = ["metric", "type", "primary", "variant", "people", "value", "effect", "interval low", "interval high", "chance to win", "p-value"]

/** One line for each metric and variant. Certainty is left out where it is withheld. */
export function csvOf(results: Results): string {
  const lines = results.metrics.flatMap((metric) => {
    if (metric.result === null) return []
    const withheld = isWithheld(results, metric.uuid)
    const { baseline, variant_results: others } = metric.result
    return [line(metric, baseline, null, withheld), ...others.map((row) => line(metric, row, row, withheld))]
  })
  return `${[csvRow(HEAD), ...lines].join("\r\n")}\r\n`
}

function line(metric: Metric, row: BaselineRow, variant: VariantRow | null, withheld: boolean): string {
  const bounds = variant && boundsOf(variant)
  const certain = withheld ? null : variant
  return csvRow([
    metric.name, metric.metric_type, metric.is_primary ? "yes" : "no", row.key, row.number_of_samples, meanOf(metric.metric_type, row),
    variant && effectOf(variant), finite(bounds?.[0]), finite(bounds?.[1]),
    certain?.chance_to_win ?? null, certain?.adjusted_p_value ?? certain?.p_value ?? null,
  ])
}

/** A bound as a cell: empty where there is none. */
function finite(bound: number | undefined): number | null {
  return bound !== undefined && Number.isFinite(bound) ? bound : null
}
