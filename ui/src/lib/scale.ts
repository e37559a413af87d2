// From numbers to pixels and back, and which numbers an axis names.

export interface Scale {
  (value: number): number
  readonly from: readonly [number, number]
  readonly to: readonly [number, number]
}

export function linear(from: readonly [number, number], to: readonly [number, number]): Scale {
  const width = from[1] - from[0] || 1
  const scale = (value: number) => to[0] + ((value - from[0]) / width) * (to[1] - to[0])
  return Object.assign(scale, { from, to })
}

/** A step of 1, 2, 2.5 or 5 times a power of ten, so that a range has about `count` of them. */
export function niceStep(range: number, count: number): number {
  const rough = Math.max(range, Number.MIN_VALUE * 1e10) / Math.max(1, count)
  const power = 10 ** Math.floor(Math.log10(rough))
  const share = rough / power
  return power * (share <= 1.2 ? 1 : share <= 2.2 ? 2 : share <= 3 ? 2.5 : share <= 6 ? 5 : 10)
}

/** The round numbers inside of a range. */
export function ticks(from: number, to: number, count: number): number[] {
  const step = niceStep(to - from, count)
  const found: number[] = []
  for (let at = Math.ceil(from / step - 1e-9); at * step <= to + step * 1e-9; at += 1) found.push(at === 0 ? 0 : Number((at * step).toPrecision(12)))
  return found
}

/** The range around zero that all intervals of a page share; a few wild ones leave it. */
export function symmetric(bounds: readonly number[], least = 0.01): number {
  const sizes = bounds.map(Math.abs).filter(Number.isFinite).sort((a, b) => a - b)
  const largest = sizes.at(-1) ?? 0
  const usual = quantile(sizes, 0.75)
  return Math.max(least, Math.min(largest, usual * 3)) * 1.06
}

/** A quantile of sorted numbers, between neighbours where it falls between. */
export function quantile(sorted: readonly number[], share: number): number {
  if (sorted.length === 0) return 0
  const place = (sorted.length - 1) * share
  const below = sorted[Math.floor(place)] ?? 0
  const above = sorted[Math.ceil(place)] ?? below
  return below + (above - below) * (place - Math.floor(place))
}

/** Every n-th of so many labels, so that at most `most` are left. */
export function everyNth(count: number, most: number): number {
  return Math.max(1, Math.ceil(count / Math.max(1, most)))
}
