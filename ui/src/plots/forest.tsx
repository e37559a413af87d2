// Intervals on an axis that all metrics of a page share: the bar, its end marks, the estimate, arrows for what leaves it.

import { type EffectStyle, intervalText } from "../lib/format"
import { type ForestAxis, tickText } from "./axis"

export const ROW_HEIGHT = 34
const BAR = 12
/** How far lines go beyond an interval's own height: rows grow with long names, and their cell cuts the rest off. */
const ROW_BEYOND = 400

interface AxisProps {
  axis: ForestAxis
  units: EffectStyle
}

/** The ticks in the head of a table. */
export function ForestTicks({ axis, units: said }: AxisProps) {
  return (
    <svg class="forest ticks" width={axis.width} height={18} aria-hidden="true">
      {axis.ticks.map((tick) => (
        <text key={tick} x={axis.scale(tick)} y={13} text-anchor="middle">
          {tickText(tick, said)}
        </text>
      ))}
    </svg>
  )
}

interface IntervalProps {
  axis: ForestAxis
  bounds: readonly [number, number] | null
  effect: number | null
  tone: "better" | "worse" | "unclear"
  units: EffectStyle
  label: string
  height?: number
}

export function Interval({ axis, bounds, effect, tone, units: said, label, height = ROW_HEIGHT }: IntervalProps) {
  const { scale, width, limit } = axis
  const middle = height / 2
  const grid = axis.ticks.map((tick) => (
    <line key={tick} class={tick === 0 ? "zero" : "grid"} x1={scale(tick)} x2={scale(tick)} y1={-ROW_BEYOND} y2={height + ROW_BEYOND} />
  ))
  if (bounds === null || effect === null)
    return (
      <svg class="forest" width={width} height={height} aria-hidden="true">
        {grid}
      </svg>
    )
  const cut = (value: number) => scale(Math.max(-limit, Math.min(limit, value)))
  const [low, high] = bounds
  const marks = ([[low, low < -limit, -1], [high, high > limit, 1]] as const).map(([value, beyond, side]) =>
    beyond ? (
      <path key={side} class="arrow" d={`M ${cut(value) + side * 8} ${middle} l ${-side * 7} -5 v 10 z`} />
    ) : (
      <line key={side} class="end" x1={cut(value)} x2={cut(value)} y1={middle - BAR / 2} y2={middle + BAR / 2} />
    ),
  )
  return (
    <svg class={`forest ${tone}`} width={width} height={height} role="img" aria-label={`${label} ${intervalText(bounds, said)}`} data-low={low} data-high={high} data-effect={effect}>
      {grid}
      <rect class="bar" x={cut(low)} y={middle - BAR / 2} width={Math.max(0, cut(high) - cut(low))} height={BAR} />
      {marks}
      {Math.abs(effect) <= limit && <circle class="estimate" cx={scale(effect)} cy={middle} r={4} />}
    </svg>
  )
}
