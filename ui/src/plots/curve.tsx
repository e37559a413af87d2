// Days against the smallest effect that they find: the price of a smaller effect.

import { useWidth } from "../kit/hooks"
import { countText } from "../lib/format"
import { linear, ticks } from "../lib/scale"

export interface CurvePoint {
  /** A share of the baseline, without its sign. */
  effect: number
  days: number
}

interface Props {
  points: readonly CurvePoint[]
  chosen: CurvePoint
  title: string
}

const HEIGHT = 170
const LEFT = 44
const RIGHT = 16
const TOP = 22
const BOTTOM = 36
/** Times the chosen length at which the axis ends: shorter effects cost the square. */
const TALLEST = 3

const shareText = (effect: number) => `${Number((effect * 100).toPrecision(3))}%`

export function DaysCurve({ points, chosen, title }: Props) {
  const [element, width] = useWidth<HTMLDivElement>()
  const top = Math.max(14, Math.min(Math.max(...points.map(({ days }) => days)), TALLEST * chosen.days))
  const shown = points.filter(({ days }) => days <= top)
  const last = shown.at(-1)?.effect ?? chosen.effect
  const first = shown[0]?.effect ?? 0
  const x = linear([first, Math.max(last, first * 1.01)], [LEFT, Math.max(width - RIGHT, LEFT + 1)])
  const y = linear([0, top], [HEIGHT - BOTTOM, TOP])
  const at = ({ effect, days }: CurvePoint) => `${x(effect).toFixed(1)} ${y(days).toFixed(1)}`
  return (
    <div class="plot" ref={element}>
      {width > 0 && (
        <svg width={width} height={HEIGHT} role="img" aria-label={title}>
          <text x="0" y="12">
            Days
          </text>
          {ticks(0, top, 4).map((tick) => (
            <g key={tick}>
              <line class={tick === 0 ? "zero" : "grid"} x1={LEFT} x2={width - RIGHT} y1={y(tick)} y2={y(tick)} />
              <text x={LEFT - 8} y={y(tick) + 4} text-anchor="end">
                {countText(tick)}
              </text>
            </g>
          ))}
          {ticks(first, last, Math.max(2, Math.floor(width / 110))).map((tick) => (
            <text key={tick} x={x(tick)} y={HEIGHT - BOTTOM + 16} text-anchor="middle">
              {shareText(tick)}
            </text>
          ))}
          <text x={width - RIGHT} y={HEIGHT - 4} text-anchor="end">
            Smallest effect that is found
          </text>
          <g class="variant-1">
            <path class="line" d={`M ${shown.map(at).join(" L ")}`} />
          </g>
          <line class="cursor" x1={x(chosen.effect)} x2={x(chosen.effect)} y1={y(chosen.days)} y2={HEIGHT - BOTTOM} />
          <circle class="chosen" cx={x(chosen.effect)} cy={y(chosen.days)} r="5" />
        </svg>
      )}
    </div>
  )
}
