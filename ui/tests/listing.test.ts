import { expect, it } from "vitest"
import { bestOf, chunksOf, nextOrder, sorted, sortsHere, type Experiment, type Summary, warningOf } from "../src/experiments/listing"
import { changeText } from "../src/experiments/reading"

const experiment = (id: number) => ({ id, status: "running" }) as unknown as Experiment
const summary = (id: number, people: number | null, withheld = false) => ({ experiment_id: id, people, metric: null, withholds_decisions: withheld }) as unknown as Summary

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

it("what endangers an experiment is said, the worst first", () => {
  expect(warningOf(experiment(1), summary(1, 0, true))).toBe("groups not comparable")
  expect(warningOf(experiment(1), summary(1, 0))).toBe("no people yet")
  expect(warningOf(experiment(1), summary(1, null))).toBeNull()
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
