import { expect, it } from "vitest"
import { bestOf, chunksOf, sharedLimit, sorted, sortsHere, type Experiment, type Summary, verdictWords, warningOf } from "../src/experiments/listing"
import { nextOrder } from "../src/kit/lists"
import { changeText } from "../src/experiments/reading"

const experiment = (id: number) => ({ id, status: "running" }) as unknown as Experiment
const summary = (id: number, people: number | null, isFresh = true) => ({ experiment_id: id, people, metric: null, is_fresh: isFresh, withholds_decisions: false }) as unknown as Summary

it("a click sorts, the next one turns it round", () => {
  expect(nextOrder("-created_at", "name", false)).toBe("name")
  expect(nextOrder("name", "name", false)).toBe("-name")
  expect(nextOrder("name", "people", true)).toBe("-people")
  expect(nextOrder("-people", "people", true)).toBe("people")
  expect([sortsHere("-people"), sortsHere("effect"), sortsHere("-created_at")]).toEqual([true, true, false])
})

it("experiments without a figure are last, whatever the direction", () => {
  const all = [experiment(1), experiment(2), experiment(3)]
  const known = new Map([[1, summary(1, null)], [2, summary(2, 5)], [3, summary(3, 7)]])
  expect(sorted(all, known, "-people").map(({ id }) => id)).toEqual([3, 2, 1])
  expect(sorted(all, known, "people").map(({ id }) => id)).toEqual([2, 3, 1])
})

it("a hundred summaries are one request", () => expect(chunksOf(Array.from({ length: 250 }, (_, at) => at)).map((each) => each.split(",").length)).toEqual([100, 100, 50]))

it("a zero is a warning only while it is of now", () => {
  expect(warningOf(experiment(1), summary(1, 0))).toBe("no people yet")
  expect(warningOf(experiment(1), summary(1, 0, false))).toBeNull()
  expect(warningOf(experiment(1), summary(1, null))).toBeNull()
})

const judged = (code: string, variant: string | null = null, withheld = false) =>
  ({ ...summary(1, 5), statistics: { baseline: "control" }, withholds_decisions: withheld, verdict: { next_action: { code, variant, text: "" }, numbers: { days: 3, days_needed: 14 } } }) as unknown as Summary
const CODES = ["fix", "fix_assignment", "fix_flag", "fix_exposures", "fix_metric", "add_metric", "write_plan", "ship_variant", "choose_variant", "keep_baseline", "weigh", "stop", "stop_for_harm"]

it("the verdict is said in words, with whether somebody has to act", () => {
  const running = { ...experiment(1), end_date: null, conclusion: null } as unknown as Experiment
  const ended = { ...running, end_date: "2026-01-01" } as Experiment
  for (const code of CODES) {
    expect(verdictWords(running, judged(code, "test"))?.needs, code).toBe(true)
    expect(verdictWords(ended, judged(code, "test"))?.needs, code).toBe(true)
    expect(verdictWords({ ...ended, conclusion: "won" } as Experiment, judged(code, "test"))?.needs, code).toBe(false)
  }
  expect(new Set(CODES.map((code) => verdictWords(running, judged(code))?.words)).size).toBe(CODES.length)
  expect(verdictWords(running, judged("keep_running"))).toEqual({ needs: false, words: "Too early: day 4 of 14" })
  expect(verdictWords(running, judged("ship_variant", "test"))?.words).toBe("Better: ship test")
  expect(verdictWords(running, undefined)).toBeNull()
  expect(verdictWords(running, { ...summary(1, 5), withholds_decisions: true } as Summary)?.needs).toBe(true)
})

it("what needs somebody comes first, what is not known last", () => {
  const all = [experiment(1), experiment(2), experiment(3)]
  const known = new Map([[1, summary(1, 5)], [2, judged("keep_running")], [3, judged("stop")]])
  expect(sorted(all, known, "-verdict").map(({ id }) => id)).toEqual([3, 2, 1])
})

it("one wide interval does not flatten the others", () => {
  expect(sharedLimit([[-0.1, 0.2], [-9, 30]])).toBeLessThan(1)
  expect(sharedLimit([[-0.1, 0.2], [-0.3, 0.4], [-Infinity, 0.3]])).toBeGreaterThan(0.4)
  expect(sharedLimit([])).toBeGreaterThan(0)
})

it("of a negative baseline the smallest loss is the best", () => {
  const row = (key: string, sum: number, interval: readonly [number, number] | null) => ({ key, number_of_samples: 100, sum, method: "frequentist", confidence_interval: interval })
  const metric = (goal: string) => ({ metric_type: "mean", goal, result: { baseline: row("control", -200, null), variant_results: [row("less", -150, [-0.3, -0.2]), row("more", -250, [0.2, 0.3])] } })
  const of = (goal: string, difference: string) => ({ metric: metric(goal), statistics: { difference_type: difference } }) as unknown as Summary
  expect(bestOf(of("increase", "relative"))?.row.key).toBe("less")
  expect(bestOf(of("decrease", "relative"))?.row.key).toBe("more")
  expect(changeText(-0.25, { relative: true, isShare: false }, -2)).toBe("−25.0% of −2")
  expect(changeText(-0.25, { relative: true, isShare: false }, 2)).toBe("−25.0%")
})
