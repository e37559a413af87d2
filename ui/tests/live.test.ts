import { expect, it } from "vitest"
import { held, MOST, NOTHING, taken } from "../src/events/live"

const event = (uuid: string) => ({ kind: "event", data: { uuid }, id: uuid })

it("the newest events are first, each once, and only so many", () => {
  const first = taken(NOTHING, [event("a"), event("b")])
  expect(first.events.map(({ uuid }) => uuid)).toEqual(["b", "a"])
  expect(taken(first, [event("b"), event("c")]).events.map(({ uuid }) => uuid)).toEqual(["c", "b", "a"])
  const flood = Array.from({ length: 3 * MOST }, (_, at) => event(String(at)))
  expect(taken(first, flood).events.length).toBe(MOST)
})

it("what was skipped adds up, and the newest rate counts", () => {
  const skipped = (count: number) => ({ kind: "skipped", data: { count }, id: "" })
  const rate = { kind: "rate", data: { received_per_s: 7, shown_per_s: 7, last_event_at: null }, id: "" }
  const live = taken(taken(NOTHING, [skipped(2)]), [skipped(3), rate])
  expect(live.skipped).toBe(5)
  expect(live.rate?.received_per_s).toBe(7)
})

it("events of a pause wait, and nothing else does", () => {
  const rate = { kind: "rate", data: { received_per_s: 7, shown_per_s: 7, last_event_at: null }, id: "" }
  const before = { live: taken(NOTHING, [event("a")]), meanwhile: [] }
  const paused = held(held(before, [event("b"), rate]), [event("c")])
  expect(paused.live.events.map(({ uuid }) => uuid)).toEqual(["a"])
  expect(paused.live.rate?.received_per_s).toBe(7)
  expect(taken(paused.live, paused.meanwhile).events.map(({ uuid }) => uuid)).toEqual(["c", "b", "a"])
  const flood = Array.from({ length: 3 * MOST }, (_, at) => event(String(at)))
  expect(held(paused, flood).meanwhile.length).toBe(MOST)
  expect(held(paused, flood).meanwhile.at(-1)?.id).toBe(String(3 * MOST - 1))
})
