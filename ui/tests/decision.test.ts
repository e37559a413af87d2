import { expect, it } from "vitest"
import { contradicts, deedsOf, disagreement, filtersBefore, primaryAction } from "../src/experiments/decision"
import type { Subject } from "../src/experiments/lifecycle"
import type { Verdict } from "../src/experiments/reading"

const verdict = (code: string, { state = "running", variant = null as string | null, withheld = false } = {}) =>
  ({ state, next_action: { code, text: "", variant }, withholds_decisions: withheld, variants: [{ variant: "test", state: "better" }, { variant: "other", state: "worse" }] }) as unknown as Verdict
const experiment = (status: string, shares = [50, 50]) =>
  ({ status, archived: false, feature_flag_key: "f", feature_flag: { filters: { multivariate: { variants: shares.map((share, at) => ({ key: ["control", "test"][at], rollout_percentage: share })) } } } }) as Subject

const RUNNING = ["running", "paused", "exposure_frozen"]
const WAITING = ["keep_running", "write_plan", "add_metric", "fix", "fix_assignment", "fix_exposures", "fix_flag", "fix_metric"]
const ENDING = ["keep_baseline", "stop", "stop_for_harm"]
const SHIPPING = ["ship_variant", "choose_variant", "weigh"]

it("the button that stands out is the verdict's next step, and nothing else", () => {
  expect(primaryAction(experiment("draft"), null, null)).toBe("launch")
  for (const status of RUNNING) {
    expect(primaryAction(experiment(status), null, null)).toBeNull()
    for (const code of WAITING) expect(primaryAction(experiment(status), verdict(code), "control"), code).toBeNull()
    for (const code of ENDING) expect(primaryAction(experiment(status), verdict(code), "control"), code).toBe("end")
    for (const code of SHIPPING) expect(primaryAction(experiment(status), verdict(code, { variant: "test" }), "control"), code).toBe("ship_variant")
  }
  for (const code of WAITING) expect(primaryAction(experiment("stopped"), verdict(code), "control"), code).toBeNull()
  // What is kept after the end is shipped, until it is.
  for (const code of [...ENDING, ...SHIPPING]) expect(primaryAction(experiment("stopped"), verdict(code, { variant: "test" }), "control"), code).toBe("ship_variant")
  expect(primaryAction(experiment("stopped", [0, 100]), verdict("ship_variant", { variant: "test" }), "control")).toBeNull()
  expect(primaryAction(experiment("stopped", [100, 0]), verdict("ship_variant", { variant: "test" }), "control")).toBe("ship_variant")
  expect(primaryAction(experiment("stopped", [100, 0]), verdict("stop"), "control")).toBeNull()
})

it("what is shipped is compared with the verdict", () => {
  const differs = (code: string, variant: string, withheld = false) => disagreement(verdict(code, { variant: "test", withheld }), "control", variant) !== null
  expect(["control", "test", "other"].map((key) => differs("ship_variant", key))).toEqual([true, false, true])
  expect(["control", "test", "other"].map((key) => differs("choose_variant", key))).toEqual([true, false, true])
  expect(["control", "test", "other"].map((key) => differs("weigh", key))).toEqual([false, false, false])
  expect(["control", "test", "other"].map((key) => differs("stop", key))).toEqual([false, true, true])
  expect(["control", "test", "other"].map((key) => differs("stop_for_harm", key))).toEqual([false, true, true])
  for (const code of WAITING) expect(differs(code, "control"), code).toBe(true)
  for (const code of SHIPPING) expect(differs(code, "test", true), code).toBe(true)
})

it("a conclusion is compared with the verdict", () => {
  const states = ["better", "worse", "mixed", "inconclusive", "running"]
  const conflicts = (conclusion: string | null, withheld = false) => states.filter((state) => contradicts(verdict("stop", { state, withheld }), conclusion))
  expect(conflicts("won")).toEqual(["worse", "inconclusive", "running"])
  expect(conflicts("lost")).toEqual(["better", "inconclusive", "running"])
  expect(conflicts("inconclusive")).toEqual(["better", "worse"])
  for (const open of [null, "stopped_early", "invalid"]) expect(conflicts(open)).toEqual([])
  expect(conflicts("won", true)).toEqual(states)
})

it("the log tells who ended and who shipped, since the last reset", () => {
  const entry = (name: string, at: string, ...changes: [string, unknown][]) => ({ created_at: at, user: { first_name: name }, detail: { changes: changes.map(([field, after]) => ({ field, after })) } })
  const shipped = entry("Ann", "3", ["shipped_variant", "test"])
  const ended = entry("Bob", "2", ["end_date", "2026-01-01"], ["status", "stopped"])
  expect(deedsOf([shipped, ended])).toEqual({ shipped: { by: "Ann", at: "3", shipped: "test" }, ended: { by: "Bob", at: "2", shipped: null } })
  expect(deedsOf([entry("Ann", "4", ["end_date", null], ["start_date", null]), shipped, ended])).toEqual({ shipped: null, ended: null })
  const both = entry("Cyd", "5", ["end_date", "2026-01-01"], ["shipped_variant", "test"])
  expect(deedsOf([both]).ended?.by).toBe("Cyd")
  expect(deedsOf([]).shipped).toBeNull()
})

it("shipping can be undone while the flag's newest change is the shipping", () => {
  const filters = (...shares: number[]) => ({ groups: [], multivariate: { variants: shares.map((share, at) => ({ key: at ? "test" : "control", rollout_percentage: share })) } })
  const change = (before: object, after: object, field = "filters") => ({ created_at: "1", detail: { changes: [{ field, before, after }] } })
  const shipped = change(filters(50, 50), filters(0, 100))
  expect(filtersBefore([shipped], "test")).toEqual(filters(50, 50))
  expect(filtersBefore([change({}, {}, "active"), shipped], "test")).toEqual(filters(50, 50))
  expect(filtersBefore([shipped], "control")).toBeNull()
  expect(filtersBefore([change(filters(0, 100), { ...filters(0, 100), groups: [{}] }), shipped], "test")).toBeNull()
  expect(filtersBefore([change(filters(0, 100), filters(50, 50)), shipped], "test")).toBeNull()
  expect(filtersBefore([], "test")).toBeNull()
})
