import { expect, it } from "vitest"
import { type FunctionHealth, stateOf } from "../src/functions/state"

const health = (figures: Partial<FunctionHealth> = {}) => ({ id: "f", succeeded: 0, failed: 0, unfinished: 0, destination_away: false, last_error: null, ...figures }) as FunctionHealth
const ERROR = { message: "502", timestamp: "2026-01-01T00:00:00Z" }

it("a function is green only where nothing fails", () => {
  const failing = [
    stateOf(true, 1, health({ failed: 3 })),
    stateOf(true, 1, health({ failed: 1, succeeded: 900 })),
    stateOf(true, 1, health({ destination_away: true, succeeded: 5 })),
    stateOf(true, 1, health({ unfinished: 60, last_error: ERROR })),
    ...[2, 3, 11, 12].map((state) => stateOf(true, state, health({ succeeded: 5 }))),
  ]
  for (const state of failing) expect([state.kind, state.why !== null]).toEqual(["warning", true])
  for (const fine of [health(), health({ succeeded: 5 }), health({ succeeded: 5, unfinished: 3, last_error: ERROR }), null]) expect(stateOf(true, 1, fine)).toEqual({ kind: "good", word: "on", why: null })
  expect(stateOf(false, 3, health({ failed: 3 })).word).toBe("off")
})
