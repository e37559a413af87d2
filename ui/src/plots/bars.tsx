// Bars: people per day stacked by variant, shares beside what was asked for, and funnels step by step.

import { clipped, countText } from "../lib/format"
import { everyNth, linear, ticks } from "../lib/scale"
import { labelAt } from "./axis"
import { Bar } from "./hatches"
import { dayText } from "../lib/time"
import { useWidth } from "../kit/hooks"

const HEIGHT = 170
const LEFT = 48
const TOP = 8
const BOTTOM = 24

export interface Stack {
  key: string
  place: number
  /** New people of each day. */
  counts: readonly number[]
}

/** New of each day from counts up to the end of each day; or those, where a course is wanted. */
export function perDay(cumulative: readonly number[]): number[] {
  return cumulative.map((count, at) => count - (cumulative[at - 1] ?? 0))
}

interface StackedProps {
  days: readonly string[]
  stacks: readonly Stack[]
  title: string
  /** What an interval is called. */
  label?: (day: string) => string
}

export function StackedDays({ days, stacks, title, label = dayText }: StackedProps) {
  const [element, width] = useWidth<HTMLDivElement>()
  const totals = days.map((_, at) => stacks.reduce((sum, stack) => sum + (stack.counts[at] ?? 0), 0))
  const top = Math.max(1, ...totals)
  const y = linear([0, top], [HEIGHT - BOTTOM, TOP])
  const slot = Math.max(1, width - LEFT - 4) / Math.max(1, days.length)
  const bar = Math.max(1, Math.min(36, slot - (slot > 6 ? 3 : 0)))
  const step = everyNth(days.length, Math.floor((width - LEFT) / 60))
  return (
    <div class="plot stacked" ref={element}>
      {width > 0 && (
        <svg width={width} height={HEIGHT} role="img" aria-label={title}>
          {ticks(0, top, 3).filter(Number.isInteger).map((tick) => (
            <g key={tick}>
              <line class={tick === 0 ? "zero" : "grid"} x1={LEFT} x2={width - 4} y1={y(tick)} y2={y(tick)} />
              <text x={LEFT - 6} y={y(tick) + 4} text-anchor="end">
                {countText(tick)}
              </text>
            </g>
          ))}
          {days.map((day, at) => {
            let below = 0
            const left = LEFT + at * slot + (slot - bar) / 2
            return (
              <g key={day}>
                <title>{`${label(day)}: ${stacks.map((stack) => `${clipped(stack.key, 80)} ${countText(stack.counts[at] ?? 0)}`).join(", ")}`}</title>
                {stacks.map((stack) => {
                  const count = stack.counts[at] ?? 0
                  const from = y(below)
                  below += count
                  return <Bar key={stack.key} place={stack.place} x={left} width={bar} y={y(below)} height={Math.max(0, from - y(below))} />
                })}
                {at % step === 0 && (
                  <text {...labelAt(left + bar / 2, width)} y={HEIGHT - 6}>
                    {label(day)}
                  </text>
                )}
              </g>
            )
          })}
        </svg>
      )}
    </div>
  )
}

export interface Share {
  key: string
  place: number
  count: number
  /** How many there should be; null: that is not known. */
  expected: number | null
}

/** One variant's people as a bar, with what was asked for as a line. */
export function ShareBar({ share, largest, title }: { share: Share; largest: number; title: string }) {
  const [element, width] = useWidth<HTMLDivElement>()
  const x = linear([0, Math.max(1, largest * 1.05)], [0, width])
  return (
    <div class="plot share" ref={element}>
      {width > 0 && (
        <svg width={width} height={18} role="img" aria-label={clipped(title, 200)}>
          <Bar place={share.place} x={0} y={3} width={x(share.count)} height={12} rx={2} />
          {share.expected !== null && <line class="expected" x1={x(share.expected)} x2={x(share.expected)} y1={0} y2={18} />}
        </svg>
      )}
    </div>
  )
}

/** One bar of a funnel's step. */
export function StepBar({ count, of, place, title }: { count: number; of: number; place: number; title: string }) {
  const [element, width] = useWidth<HTMLDivElement>()
  return (
    <div class="plot step" ref={element}>
      {width > 0 && (
        <svg width={width} height={14} role="img" aria-label={title}>
          <rect class="track" x={0} y={1} width={width} height={12} rx={2} />
          <Bar place={place} x={0} y={1} width={of > 0 ? (width * count) / of : 0} height={12} rx={2} />
        </svg>
      )}
    </div>
  )
}
