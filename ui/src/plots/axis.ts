// The one axis module: which range a plot shows, its ticks, and what they are called.

import { effectText, type EffectStyle } from "../lib/format"
import { linear, quantile, type Scale, symmetric, ticks } from "../lib/scale"

export interface ForestAxis {
  scale: Scale
  ticks: number[]
  width: number
  limit: number
}

export const FOREST_EDGE = 14

/** The axis that all intervals of a page share, symmetric around zero; arrows of what leaves it fit beside it. */
export function forestAxis(bounds: readonly number[], width: number): ForestAxis {
  const limit = symmetric(bounds)
  const scale = linear([-limit, limit], [FOREST_EDGE, Math.max(width - FOREST_EDGE, FOREST_EDGE + 1)])
  const wanted = width < 180 ? 2 : 4
  return { scale, ticks: ticks(-limit, limit, wanted), width, limit }
}

/** The names of an axis' ticks, without the zeros that all of them end with. */
export function tickText(value: number, style: EffectStyle): string {
  return effectText(value, style).replace(/\.0(?=%)/, "")
}

const HALF_LABEL = 22

/** Where the name of a day stands: below its place, but inside of the plot. */
export function labelAt(x: number, width: number): { x: number; "text-anchor": "middle" | "end" } {
  return x > width - HALF_LABEL ? { x: width - 2, "text-anchor": "end" } : { x, "text-anchor": "middle" }
}

/** The range of a course over days: from the 5th to the 95th percentile of its bounds, and zero. */
export function courseRange(bounds: readonly number[]): readonly [number, number] {
  const sorted = bounds.filter(Number.isFinite).sort((a, b) => a - b)
  const [low, high] = [Math.min(0, quantile(sorted, 0.05)), Math.max(0, quantile(sorted, 0.95))]
  const margin = (high - low || 0.1) * 0.06
  return [low - margin, high + margin]
}
