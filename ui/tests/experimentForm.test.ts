import { describe, expect, it } from "vitest"
import { baselineOf, bodyOf, changesOf, type Draft, draftOf, type Experiment, faultOf, keyOf, NEW, problemsOf } from "../src/experiments/form/draft"
import { metricDraftOf, nameOf, newMetric, NO_SOURCE, problemOfMetric, retyped, wireOfMetric } from "../src/experiments/form/metric"
import { planOf, planQuery, recommended, wholeWeeks } from "../src/experiments/form/plan"
import { kindOf, linesOf, summaryOf } from "../src/experiments/form/words"
import { object } from "../src/lib/loose"

const node = (event: string, more: object = {}) => ({ kind: "EventsNode", event, ...more })
const metric = (more: object) => ({ kind: "ExperimentMetric", goal: "increase", uuid: "u", name: "n", ...more })
const WIRES = [
  metric({ metric_type: "mean", source: node("buy", { math: "sum", math_property: "amount" }), lower_bound_percentile: 0.01, upper_bound_percentile: 0.995, ignore_zeros: true, threshold: 3 }),
  metric({ metric_type: "mean", source: { kind: "ActionsNode", id: 4, math: "unique_group", math_group_type_index: 0 }, conversion_window: 7, conversion_window_unit: "week" }),
  metric({ metric_type: "mean", source: node("buy", { math: "hogql", math_hogql: "sum(toFloat(properties.amount))" }) }),
  metric({ metric_type: "funnel", series: [node("a", { properties: [{ key: "x", type: "event", operator: "gt", value: "3" }], custom_name: "A" }), { kind: "ActionsNode", id: 9 }], funnel_order_type: "unordered", goal: "decrease" }),
  metric({ metric_type: "ratio", numerator: node("buy", { math: "sum", math_property: "amount" }), denominator: node("buy"), numerator_outlier_handling: { lower_bound_percentile: 0.1, upper_bound_percentile: 0.9 }, denominator_outlier_handling: { upper_bound_percentile: 0.99 } }),
  metric({ metric_type: "retention", start_event: node("in"), completion_event: node("back"), retention_window_start: 0, retention_window_end: 7, retention_window_unit: "day", start_handling: "last_seen" }),
  metric({ metric_type: "quantile", source: node("load", { math: "avg", math_property: "s" }), quantile_level: 0.995, quantile_unit: "event", ignore_zeros: true }),
  metric({ metric_type: "mean", source: { kind: "ExperimentDataWarehouseNode", table_name: "t", timestamp_field: "at", events_join_key: "a", data_warehouse_join_key: "b", math: "sum", math_property: "v" } }),
  metric({ metric_type: "mean", source: node("refund"), role: "guardrail", margin: 0.025, breakdownFilter: { breakdowns: [{ property: "plan", type: "person" }] }, goal: "decrease" }),
]

const EXPERIMENT = {
  id: 3, name: "One", description: "Why", feature_flag_key: "one", start_date: null, status: "draft", archived: false, updated_at: "now", holdout_id: null, saved_metrics: [{ saved_metric: 5, name: "S", metadata: { type: "secondary" } }],
  feature_flag: { id: 1, key: "one", version: 2, filters: { groups: [{ properties: [{ key: "plan", type: "person", operator: "exact", value: ["pro"] }], rollout_percentage: 40 }], multivariate: { variants: [{ key: "control", name: "Control Group", rollout_percentage: 30 }, { key: "b", rollout_percentage: 70 }] } } },
  parameters: { feature_flag_variants: [], rollout_percentage: 40, pause_on_harm: true, variant_notes: { b: "x" }, ensure_experience_continuity: true, minimum_detectable_effect: 5 },
  stats_config: { method: "frequentist", frequentist: { alpha: 0.01, difference_type: "ABSOLUTE", sequential_testing_enabled: true, sequential_tuning_parameter: 900 }, bayesian: { ci_level: 0.99 }, cuped: { enabled: true, lookback_days: 7 }, baseline_variant_key: "b", multiple_testing_correction: "holm" },
  exposure_criteria: { filterTestAccounts: false, multiple_variant_handling: "first_seen", exposure_config: { kind: "ExperimentEventExposureConfig", event: "opened", properties: [] }, activation_config: null },
  metrics: [WIRES[0]], metrics_secondary: [WIRES[8]], running_time_calculation: { minimum_detectable_effect: 5, recommended_running_time: 14, recommended_sample_size: 2000 },
} as unknown as Experiment

describe("a metric", () => {
  it.each(WIRES)("is the same on the wire after it was a draft: %j", (wire) => {
    const draft = metricDraftOf(wire, object(wire).role === "guardrail" ? "guardrail" : "primary")
    expect(wireOfMetric(draft)).toEqual(wire)
    expect(problemOfMetric(draft)).toBeNull()
  })
  it("gets a name from what it measures", () => {
    expect(nameOf({ ...newMetric("funnel", "primary"), sources: [{ ...NO_SOURCE, event: "a" }, { ...NO_SOURCE, event: "b" }] })).toBe("Conversion to b")
    expect(nameOf(metricDraftOf(object(WIRES[4]), "primary"))).toBe("sum of amount per buy")
    expect(nameOf({ ...newMetric("quantile", "primary"), level: "99.5", sources: [{ ...NO_SOURCE, event: "load", math: "avg", of: "s" }] })).toBe("p99.5 of average s")
  })
  it("says what it lacks", () => {
    expect(problemOfMetric(newMetric("funnel", "primary"))).toBe("Name the event of each step.")
    expect(problemOfMetric(newMetric("retention", "primary"))).toBe("Name both events.")
    expect(problemOfMetric({ ...newMetric("mean", "primary"), sources: [{ ...NO_SOURCE, event: "a", math: "sum" }] })).toBe("Say which property counts.")
    expect(problemOfMetric({ ...newMetric("mean", "guardrail"), margin: "100", sources: [{ ...NO_SOURCE, event: "a" }] })).toContain("margin")
  })
  it("keeps its first sources when its type changes", () => {
    const steps = ["a", "b", "c"].map((event) => ({ ...NO_SOURCE, event }))
    expect(retyped("ratio", steps).map(({ event }) => event)).toEqual(["a", "b"])
    expect(retyped("retention", []).length).toBe(2)
  })
})

describe("a draft", () => {
  it("is the same on the wire after it was read", () => {
    const draft = draftOf(EXPERIMENT)
    expect(changesOf(EXPERIMENT, draft, null)).toEqual({ fields: {}, groups: null })
    const body = bodyOf(draft, null)
    expect(body.stats_config).toEqual(EXPERIMENT.stats_config)
    expect(body.exposure_criteria).toEqual({ ...(EXPERIMENT.exposure_criteria as object) })
    expect(body.running_time_calculation).toEqual(EXPERIMENT.running_time_calculation)
    expect(body.saved_metrics_ids).toEqual([{ id: 5, metadata: { type: "secondary" } }])
    expect(body.metrics).toEqual(EXPERIMENT.metrics)
    expect(body.metrics_secondary).toEqual(EXPERIMENT.metrics_secondary)
    expect(object(body.parameters).variant_notes).toEqual({ b: "x" })
    expect(baselineOf(draft)).toBe("b")
  })
  it.each([{ design: "group_sequential", spending: "pocock", analyses: 6 }, { design: "hybrid" }, { design: "group_sequential", analysis_days: [5, 9] }])("keeps a design: %j", (design) => {
    const stats_config = { method: "frequentist", frequentist: { alpha: 0.05, difference_type: "RELATIVE", sequential_testing_enabled: false, ...design } }
    const draft = draftOf({ ...EXPERIMENT, stats_config } as unknown as Experiment)
    expect(draft.method).toBe(design.design)
    expect(bodyOf(draft, null).stats_config).toEqual(stats_config)
    expect(object(object(bodyOf({ ...draft, method: "frequentist" }, null).stats_config).frequentist).design).toBeUndefined()
  })
  it("sends only what changed", () => {
    const draft = { ...draftOf(EXPERIMENT), name: "Two", conditions: [] }
    expect(changesOf(EXPERIMENT, draft, null)).toEqual({ fields: { name: "Two" }, groups: [{ properties: [], rollout_percentage: 40 }] })
  })
  it("takes the plan that was made where nobody wrote another", () => {
    const plan = { days: 21, people: 4000 }
    expect(bodyOf(NEW, plan).running_time_calculation).toEqual({ minimum_detectable_effect: 10, recommended_running_time: 21, recommended_sample_size: 4000 })
    expect(bodyOf({ ...NEW, days: "7" }, plan).running_time_calculation).toMatchObject({ recommended_running_time: 7, recommended_sample_size: 4000 })
  })
  it("leaves the flag alone that it is linked to", () => {
    expect(bodyOf({ ...NEW, isLinked: true }, null).parameters).toEqual({ pause_on_harm: false })
  })
  it("says what is wrong, by field", () => {
    const faulty: Draft = { ...NEW, variants: [{ key: "a", share: "50", rest: {} }, { key: "a", share: "40", rest: {} }], rollout: "x", exposure: "EventsNode", level: "100", days: "1.5" }
    expect(Object.keys(problemsOf(faulty)).sort()).toEqual(["days", "exposure", "key", "level", "name", "rollout", "variants"])
    expect(problemsOf({ ...NEW, name: "a", key: "a" })).toEqual({})
  })
  it.each([["New checkout!", "new-checkout"], ["Ünïcode  & more", "unicode-more"], ["--", ""]])("makes a key of a name: %s", (name, key) => expect(keyOf(name)).toBe(key))
})

describe("a refusal", () => {
  const draft: Draft = { ...NEW, metrics: [{ ...newMetric("mean", "guardrail"), id: "g" }, { ...newMetric("mean", "primary"), id: "p" }] }
  it.each([
    ["metrics", "Invalid metric at index 0: no such action", ["metric p", "no such action"]],
    ["metrics_secondary", "Invalid metric at index 0: x", ["metric g", "x"]],
    ["parameters", "Feature flag variants must be less than 21", ["variants", "Feature flag variants must be less than 21"]],
    ["feature_flag__filters", "taken", ["key", "taken"]],
    [null, "something", ["", "something"]],
  ])("belongs to a field: %s, %s", (attr, detail, expected) => expect(faultOf(draft, attr, detail)).toEqual(expected))
})

describe("a plan", () => {
  const complete: Draft = { ...NEW, name: "n", key: "k", metrics: [{ ...newMetric("funnel", "primary"), sources: [{ ...NO_SOURCE, event: "buy" }], goal: "decrease" }] }
  it("is asked for once a primary metric is complete", () => {
    expect(planQuery(NEW)).toBeNull()
    expect(planQuery({ ...complete, effect: "" })).toBeNull()
    const query = object(planQuery(complete))
    expect((query.effects as number[]).every((effect) => effect < 0 && effect > -1)).toBe(true)
    expect((query.effects as number[])[0]).toBe(-0.1)
    expect(object(object(query.experiment).parameters)).toEqual({ feature_flag_variants: [{ key: "control", split_percent: 50 }, { key: "test", split_percent: 50 }], rollout_percentage: 100 })
  })
  it("needs more power with guardrails", () => {
    const guarded = { ...complete, metrics: [...complete.metrics, newMetric("mean", "guardrail")] }
    expect(object(planQuery(guarded)).power).toBe(0.9)
  })
  it("is read from the answer, and planned in whole weeks", () => {
    const plan = planOf({ history: { people: 10, people_per_day: [0, 10, 20, 5], mean: 0.2, event: "any event" }, effects: [{ effect: 0.1, people: 500, days: 15 }, { effect: 0.05, people: 2000, days: null }], detectable: [{ days: 7, people: 9, effect: null }] })
    expect(plan?.perDay).toBe(10)
    expect(plan?.curve.map(({ effect }) => effect)).toEqual([0.05, 0.1])
    expect(plan?.detectable).toEqual([])
    expect(recommended(plan)).toEqual({ days: 21, people: 500 })
    expect(recommended(planOf({ effects: [{ effect: 0.1, people: 5, days: null }] }))).toBeNull()
    expect([wholeWeeks(1), wholeWeeks(7), wholeWeeks(8)]).toEqual([7, 7, 14])
  })
})

describe("the words of a draft", () => {
  const draft = draftOf(EXPERIMENT)
  const none = new Map<string, string>()
  it("are a few sentences", () => {
    expect(summaryOf({ ...NEW, key: "k" }, null, none)).toEqual(["Everyone who reaches code that asks for “k” gets “control” 50% or “test” 50%.", "Nothing decides it yet: add a primary metric.", "Nobody has planned yet when it ends."])
    expect(summaryOf(draft, null, none)).toEqual([
      "40% of the people who do “opened”, where the person's plan is pro, get “control” 30% or “b” 70%.",
      "A variant ships when it does better than “b” in “n” and does not harm “n”.",
      "Its verdict may be acted on at any time, and comes after 14 days and 2,000 people at the latest.",
      "The server pauses it as soon as a variant is certainly worse.",
    ])
  })
  it("sort changes of a launched experiment", () => {
    const kind = (label: string, changed: Partial<Draft>) => kindOf(label, draft, { ...draft, ...changed })
    expect(kind("Takes part", { rollout: "60" })).toBe("safe")
    expect(kind("Takes part", { rollout: "20" })).toBe("phase")
    expect(kind("Variants", {})).toBe("phase")
    expect(kind("Hypothesis", {})).toBe("safe")
    expect(kind("Decides", {})).toBe("amends")
  })
  it("name every metric once", () => {
    expect([...linesOf(draft, none).keys()].filter((label) => label.startsWith("Metric"))).toEqual(["Metric n", "Metric n (2)"])
  })
})
