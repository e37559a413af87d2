// An effect over days: the estimate as a line, its interval as a band, days without a result as gaps.

import { useState } from "preact/hooks"
import { clipped, effectText, type EffectStyle, intervalText } from "../lib/format"
import { colourOf, hatchOf } from "../lib/colours"
import { everyNth, linear, ticks } from "../lib/scale"
import { dayText } from "../lib/time"
import { useWidth } from "../kit/hooks"
import { courseRange, labelAt, tickText } from "./axis"

export interface CoursePoint {
  effect: number
  bounds: readonly [number, number]
}

export interface CourseLine {
  key: string
  place: number
  points: (CoursePoint | null)[]
}

interface CourseProps {
  days: readonly string[]
  lines: readonly CourseLine[]
  units: EffectStyle
  title: string
}

const HEIGHT = 190
const LEFT = 56
const RIGHT = 10
const TOP = 8
const BOTTOM = 24

/** The stretches of days that follow each other and have a point. */
export function stretches(points: readonly (CoursePoint | null)[]): [number, CoursePoint][][] {
  const found: [number, CoursePoint][][] = []
  let open: [number, CoursePoint][] | null = null
  for (const [at, point] of points.entries()) {
    if (point === null) open = null
    else if (open === null) found.push((open = [[at, point]]))
    else open.push([at, point])
  }
  return found
}

export function Course({ days, lines, units: said, title }: CourseProps) {
  const [element, width] = useWidth<HTMLDivElement>()
  const [chosen, setChosen] = useState<number | null>(null)
  const range = courseRange(lines.flatMap((line) => line.points.flatMap((point) => (point ? point.bounds : []))))
  const x = linear([0, Math.max(1, days.length - 1)], [LEFT, Math.max(width - RIGHT, LEFT + 1)])
  const y = linear(range, [HEIGHT - BOTTOM, TOP])
  const cut = (value: number) => y(Math.max(range[0], Math.min(range[1], value))).toFixed(1)
  const step = everyNth(days.length, Math.floor((width - LEFT) / 64))
  const nearest = (event: PointerEvent & { currentTarget: SVGSVGElement }) => {
    const at = event.clientX - event.currentTarget.getBoundingClientRect().left
    const share = (at - LEFT) / Math.max(1, width - LEFT - RIGHT)
    setChosen(Math.max(0, Math.min(days.length - 1, Math.round(share * (days.length - 1)))))
  }
  const read = (event: KeyboardEvent) => {
    const move = { ArrowLeft: -1, ArrowRight: 1, Home: -days.length, End: days.length }[event.key]
    if (move === undefined) return
    event.preventDefault()
    setChosen(Math.max(0, Math.min(days.length - 1, (chosen ?? days.length - 1) + move)))
  }
  const day = chosen === null ? null : days[chosen]
  return (
    <div class="plot" ref={element}>
      {width > 0 && (
        <svg width={width} height={HEIGHT} role="img" tabindex={0} aria-label={`${clipped(title, 200)}. Arrow keys read single days.`} onPointerMove={nearest} onPointerLeave={() => setChosen(null)} onKeyDown={read}>
          {ticks(range[0], range[1], 4).map((tick) => (
            <g key={tick}>
              <line class={tick === 0 ? "zero" : "grid"} x1={LEFT} x2={width - RIGHT} y1={y(tick)} y2={y(tick)} />
              <text x={LEFT - 6} y={y(tick) + 4} text-anchor="end">
                {tickText(tick, said)}
              </text>
            </g>
          ))}
          {days.map((each, at) => at % step === 0 && (
            <text key={each} {...labelAt(x(at), width)} y={HEIGHT - 6} {...(at === 0 && { "text-anchor": "start" })}>
              {dayText(each)}
            </text>
          ))}
          {lines.map((line) => (
            <g key={line.key} class={`variant-${colourOf(line.place)} hatched-${hatchOf(line.place)}`} data-variant={line.key}>
              {stretches(line.points).map((stretch) => (
                <g key={stretch[0]?.[0]}>
                  <path class="band" d={`M ${[...stretch.map(([at, point]) => `${x(at).toFixed(1)} ${cut(point.bounds[1])}`), ...[...stretch].reverse().map(([at, point]) => `${x(at).toFixed(1)} ${cut(point.bounds[0])}`)].join(" L ")} Z`} />
                  <path class="line" d={`M ${stretch.map(([at, point]) => `${x(at).toFixed(1)} ${cut(point.effect)}`).join(" L ")}`} />
                </g>
              ))}
            </g>
          ))}
          {chosen !== null && <line class="cursor" x1={x(chosen)} x2={x(chosen)} y1={TOP} y2={HEIGHT - BOTTOM} />}
        </svg>
      )}
      <p class="reading" role="status">
        {day && chosen !== null ? (
          <>
            <strong>{dayText(day)}</strong>
            {lines.map((line) => {
              const point = line.points[chosen]
              return (
                <span key={line.key}>
                  <bdi>{clipped(line.key, 80)}</bdi> {point ? `${effectText(point.effect, said)} (${intervalText(point.bounds, said)})` : "no result"}
                </span>
              )
            })}
          </>
        ) : (
          <span class="quiet">Point at a day, or use the arrow keys, to read it.</span>
        )}
      </p>
    </div>
  )
}
