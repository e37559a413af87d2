// Numbers, times and texts as people read them. Numbers are those of `hoglab experiment`, digit by digit, but with a real minus sign.

export const MISSING = "–"
const MINUS = "−"

function signed(text: string): string {
  return text.replace("-", MINUS)
}

function grouped(digits: string): string {
  const [whole = "", ...rest] = digits.split(".")
  return [whole.replace(/\B(?=(\d{3})+$)/g, ","), ...rest].join(".")
}

/** Significant digits without zeros at the end, and as a power of ten where that is shorter: C's `%g`. */
export function general(value: number, digits: number): string {
  const exponent = value === 0 ? 0 : Number(value.toExponential(digits - 1).split("e")[1])
  if (exponent < -4 || exponent >= digits) {
    const [mantissa = "", power = "0"] = value.toExponential(digits - 1).split("e")
    const size = String(Math.abs(Number(power))).padStart(2, "0")
    return `${trimmed(mantissa)}e${Number(power) < 0 ? "-" : "+"}${size}`
  }
  return trimmed(value.toFixed(Math.max(0, digits - 1 - exponent)))
}

function trimmed(digits: string): string {
  return digits.includes(".") ? digits.replace(/\.?0+$/, "") : digits
}

function withSign(value: number, digits: string): string {
  return signed(value < 0 ? digits : `+${digits}`)
}

export interface EffectStyle {
  relative: boolean
  isShare: boolean
}

/** An effect with its sign: in percent of the baseline, in percentage points, or in the metric's unit. */
export function effectText(effect: number, { relative, isShare }: EffectStyle): string {
  const unit = relative ? "%" : isShare ? " pp" : ""
  if (effect === 0) return `0${unit}`
  if (relative) return `${withSign(effect, grouped((effect * 100).toFixed(1)))}%`
  return isShare ? `${withSign(effect, general(effect * 100, 3))} pp` : withSign(effect, general(effect, 4))
}

/** Both bounds of an interval; of one without a bound on a side, the other and the direction. */
export function intervalText([low, high]: readonly [number, number], style: EffectStyle): string {
  if (Number.isFinite(low) && Number.isFinite(high)) return `${effectText(low, style)} … ${effectText(high, style)}`
  if (Number.isFinite(low)) return `${effectText(low, style)} or more`
  return Number.isFinite(high) ? `${effectText(high, style)} or less` : "no bounds"
}

/** A total or a mean: whole numbers as such, others with four significant digits or all before the point. */
export function numberText(value: number | null | undefined): string {
  if (value === null || value === undefined) return MISSING
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return signed(grouped(value.toFixed(0)))
  return signed(Math.abs(value) >= 10_000 ? grouped(value.toFixed(0)) : grouped(general(value, 4)))
}

export function meanText(value: number | null, isShare: boolean): string {
  return isShare && value !== null ? `${(value * 100).toFixed(2)}%` : numberText(value)
}

/** The level of an interval: "95%". */
export function levelText(level: number): string {
  return `${Number((level * 100).toPrecision(6))}%`
}

/** A p-value with its sign of relation; a very small one, and one near one, as a bound. */
export function pText(value: number): string {
  if (value > 0.99) return "p > 0.99"
  return value < 0.0001 ? "p < 0.0001" : `p = ${general(value, 2)}`
}

/** A probability; one that is not certain never reads as 0 or 100. */
export function percentText(share: number): string {
  const text = `${(share * 100).toFixed(1)}%`
  if (text === "100.0%" && share < 1) return "> 99.9%"
  return text === "0.0%" && share > 0 ? "< 0.1%" : text
}

export function countText(value: number): string {
  return grouped(String(Math.round(value)))
}

export function bytesText(bytes: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"]
  let [value, at] = [bytes, 0]
  while (value >= 1000 && at < units.length - 1) [value, at] = [value / 1000, at + 1]
  return `${at === 0 ? value : value.toPrecision(3)} ${units[at]}`
}

export function counted(count: number, noun: string, several = `${noun}s`): string {
  return `${countText(count)} ${count === 1 ? noun : several}`
}

// Control, bidirectional and zero-width characters, which would let a name look like another one.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g
export const MAX_SHOWN = 2000

/** What somebody else wrote, with nothing in it that is invisible or turns text around. */
export function visible(text: string): string {
  return text.replace(HIDDEN, (found) => `\\u${found.charCodeAt(0).toString(16).padStart(4, "0")}`)
}

export function clipped(text: string, most = MAX_SHOWN): string {
  return text.length > most ? `${visible(text.slice(0, most))}…` : visible(text)
}

/** The address when a link may lead there, else null. */
export function safeLink(text: string): string | null {
  return /^(https?:\/\/|mailto:)/i.test(text) && text.length < 4096 ? text : null
}
