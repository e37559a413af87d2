// The colours of variants, by their place: six, then the same again under hatching.

const COLOURS = 6
const HATCHES = 3

export function colourOf(place: number): number {
  return place % COLOURS
}

/** Which hatching lies over the colour; 0: none. */
export function hatchOf(place: number): number {
  return Math.min(Math.floor(place / COLOURS), HATCHES)
}
