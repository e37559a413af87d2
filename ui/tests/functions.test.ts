import { expect, it } from "vitest"
import { countName, type FunctionHealth, stateOf } from "../src/functions/state"
import { functionFilterTexts } from "../src/lib/conditions"

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

it("filters of a function read as sentences", () => {
  const total = { key: "amount", type: "event", operator: "gt", value: "10" }
  expect(functionFilterTexts({})).toEqual(["All events"])
  expect(functionFilterTexts({ events: [{ id: "bought", properties: [total] }, { id: null }], filter_test_accounts: true })).toEqual([
    "Events “bought” where amount is greater than 10",
    "All events",
    "Without events of internal and test accounts",
  ])
  const expression = { key: "length(event.event) > 3", type: "hogql", value: null }
  expect(functionFilterTexts({ actions: [{ id: 7 }], properties: [{ key: "plan", type: "person", value: ["pro", "team"] }, expression] })).toEqual([
    "Events of the action “7”",
    "Only where the person's plan is pro, team and length(event.event) > 3",
  ])
})

it("counts of a function are named in words", () => {
  expect([countName("filtered"), countName("a_new_count")]).toEqual(["Events not matched", "a new count"])
})
