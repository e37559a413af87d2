// How variants share people.

import type { Json } from "./loose"

export interface VariantDraft {
  key: string
  share: string
  /** What the wire has besides, kept as it is. */
  rest: Json
}

export function sumOf(variants: readonly VariantDraft[]): number {
  return Number(variants.reduce((sum, { share }) => sum + Number(share), 0).toFixed(10))
}

/** The variants with equal shares, in hundredths, that sum to 100. */
export function equalised(variants: readonly VariantDraft[]): VariantDraft[] {
  const least = Math.floor(10_000 / variants.length)
  return variants.map((variant, at) => ({ ...variant, share: String((least + (at < 10_000 - least * variants.length ? 1 : 0)) / 100) }))
}
