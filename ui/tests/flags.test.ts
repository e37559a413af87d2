import { describe, expect, it } from "vitest"
import { changesOf, type Draft, differencesOf, draftOf, faultOf, NEW, problemsOf, sentenceOf } from "../src/flags/draft"
import { typedValue } from "../src/filters/property"
import { equalised } from "../src/lib/split"
import { stateAfter } from "../src/flags/History"
import type { Flag } from "../src/flags/model"
import { rolloutText } from "../src/lib/rules"

const plan = { key: "plan", type: "person", operator: "exact", value: ["pro"] }
const flagOf = (filters: object, more: object = {}) => ({ id: 3, key: "checkout", name: "", tags: [], active: true, ensure_experience_continuity: false, filters, ...more }) as unknown as Flag
const split = flagOf({
  groups: [{ properties: [plan], rollout_percentage: 25, variant: "a", description: "kept" }, { properties: [], rollout_percentage: null }],
  multivariate: { variants: [{ key: "a", rollout_percentage: 50 }, { key: "b", name: "B", rollout_percentage: 50 }] },
  payloads: { a: '{"x": 1}' },
  holdout: { id: 7, exclusion_percentage: 10 },
})
const no = new Map<string, string>()

describe("a draft", () => {
  it("of a flag that nobody changed sends nothing, whatever the flag has", () => {
    for (const flag of [split, flagOf({ groups: [{}] }), flagOf({ groups: [{ properties: [{ key: "id", type: "cohort", value: 4 }] }], aggregation_group_type_index: 1 })]) expect(changesOf(flag, draftOf(flag))).toEqual({})
  })
  it("sends only what changed, and keeps what it does not show", () => {
    const draft = draftOf(split)
    const conditions = draft.conditions.map((condition, at) => (at === 0 ? { ...condition, share: "30" } : condition))
    const changes = changesOf(split, { ...draft, conditions }) as { filters: { groups: object[] } }
    expect(Object.keys(changes)).toEqual(["filters"])
    expect(Object.keys(changes.filters)).toEqual(["groups"])
    expect(changes.filters.groups[0]).toMatchObject({ rollout_percentage: 30, description: "kept", variant: "a" })
    expect(changesOf(split, { ...draft, tags: "x, y ,x" })).toEqual({ tags: ["x", "y"] })
  })
  it("takes the payloads of removed variants away", () => {
    const changes = changesOf(split, { ...draftOf(split), variants: [] }) as { filters: object }
    expect(changes.filters).toEqual({ multivariate: null, payloads: {} })
  })
  it("says what cannot be saved, at its field", () => {
    const with_ = (changes: Partial<Draft>) => Object.keys(problemsOf({ ...draftOf(split), ...changes }))
    expect(with_({})).toEqual([])
    expect(with_({ key: "a b" })).toEqual(["key"])
    expect(with_({ conditions: [] })).toEqual(["groups"])
    expect(with_({ conditions: [{ properties: [], share: "101", variant: "", rest: {} }] })).toEqual(["groups[0]"])
    expect(with_({ variants: [{ key: "a", share: "50", rest: {} }, { key: "b", share: "49", rest: {} }] })).toEqual(["multivariate"])
    expect(with_({ variants: [{ key: "a", share: "50", rest: {} }, { key: "a", share: "50", rest: {} }] })).toEqual(["multivariate"])
    expect(with_({ payloads: { a: "{x", gone: "{x" } })).toEqual(["payloads.a"])
    expect(Object.keys(problemsOf(NEW))).toEqual(["key"])
  })
  it("reads as sentences, and differs in words", () => {
    const draft = draftOf(split)
    expect(draft.conditions.map((condition) => sentenceOf(condition, no, ""))).toEqual(["25% of people where plan is pro get a", "100% of everyone"])
    expect(differencesOf(draft, { ...draft, name: "New" }, no)).toEqual([{ label: "Name", before: "", after: "New" }])
    const depends = { properties: [{ key: "12", type: "flag", operator: "flag_evaluates_to", value: true, rest: {} }], share: "5", variant: "", rest: {} }
    expect(sentenceOf(depends, new Map([["12", "base"]]), "")).toBe("5% of people where flag base is true")
  })
})

it("equal shares sum to 100 for every number of variants", () => {
  for (let count = 1; count <= 20; count += 1) {
    const shares = equalised(Array.from({ length: count }, () => ({ key: "", share: "0", rest: {} }))).map(({ share }) => Number(share))
    expect(Math.abs(shares.reduce((sum, share) => sum + share, 0) - 100)).toBeLessThan(1e-9)
    expect(Math.max(...shares) - Math.min(...shares)).toBeLessThan(0.011)
  }
})

it("values are what their operator takes", () => {
  expect(typedValue("a, b,", { type: "person", operator: "exact" })).toEqual(["a", "b"])
  expect(typedValue("a, b", { type: "person", operator: "icontains" })).toBe("a, b")
  expect(typedValue("true", { type: "flag", operator: "flag_evaluates_to" })).toBe(true)
  expect(typedValue("7", { type: "cohort", operator: "in" })).toBe(7)
})

it("a refusal stands at the field that it names", () => {
  expect(faultOf("filters", "groups[1].properties[0].value: No.")).toEqual(["groups[1]", "No."])
  expect(faultOf("filters", "multivariate.variants: Sum.")).toEqual(["multivariate", "Sum."])
  expect(faultOf("filters", "Something else")).toEqual(["filters", "Something else"])
  expect(faultOf("key", "There is already a feature flag with this key.")).toEqual(["key", "There is already a feature flag with this key."])
})

it("an earlier state is the present one with newer changes taken back, the newest first", () => {
  const entry = (field: string, before: unknown, after: unknown) => ({ detail: { changes: [{ field, before, after }] } }) as never
  const now = flagOf({ groups: [] }, { name: "third", active: false })
  expect(stateAfter(now, [entry("name", "second", "third"), entry("active", true, false), entry("name", "first", "second"), entry("deleted", true, false)])).toMatchObject({ name: "first", active: true })
})

it("a list says in few words who gets a flag", () => {
  expect(rolloutText({ groups: [{}] })).toBe("everyone")
  expect(rolloutText({ groups: [{ rollout_percentage: 0 }] })).toBe("nobody")
  expect(rolloutText({ groups: [{ rollout_percentage: 25 }] })).toBe("25% of everyone")
  expect(rolloutText({ groups: [{ properties: [plan, plan, plan], rollout_percentage: 25 }] })).toBe("25% of everyone where plan is pro and 2 more")
  expect(rolloutText({ groups: [{ properties: [plan] }, { rollout_percentage: 5 }] })).toBe("2 conditions")
  expect(rolloutText({ groups: [{ properties: [plan] }, {}] })).toBe("everyone")
  expect(rolloutText({ groups: [{}], aggregation_group_type_index: 0 })).toBe("all groups")
})
