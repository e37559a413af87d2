// Hatching over the colour of variants for which no colour of their own is left.

import { colourOf, hatchOf } from "../lib/colours"

const TURNS = [45, -45, 0] as const

/** The patterns, once a document. */
export function Hatches() {
  return (
    <svg class="unseen" width={0} height={0} aria-hidden="true">
      <defs>
        {TURNS.map((turn, at) => (
          <pattern key={turn} id={`hatch-${at + 1}`} width={5} height={5} patternUnits="userSpaceOnUse" patternTransform={`rotate(${turn})`}>
            <line class="hatch" x1={0} x2={0} y1={0} y2={5} />
          </pattern>
        ))}
      </defs>
    </svg>
  )
}

interface BarProps {
  place: number
  x: number
  y: number
  width: number
  height: number
  rx?: number
}

/** A bar of a variant. */
export function Bar({ place, ...shape }: BarProps) {
  const hatch = hatchOf(place)
  return (
    <>
      <rect class={`fill variant-${colourOf(place)}`} {...shape} />
      {hatch > 0 && <rect fill={`url(#hatch-${hatch})`} {...shape} />}
    </>
  )
}
