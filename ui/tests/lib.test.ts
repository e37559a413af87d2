import { describe, expect, it } from "vitest"
import { match, pathOf, withQuery } from "../src/lib/router"
import { linear, quantile, symmetric, ticks } from "../src/lib/scale"
import { absolute, ago, dayText, daysBetween, justAfter } from "../src/lib/time"
import { courseRange, forestAxis } from "../src/plots/axis"
import { perDay } from "../src/plots/bars"
import { stretches } from "../src/plots/course"
import { shortcutOf } from "../src/app/commands"
import { definitionTexts } from "../src/experiments/definition"
import { lookText } from "../src/experiments/VerdictCard"
import { find, ROUTES, withProject } from "../src/app/routes"

describe("router", () => {
  it("parts are decoded, the rest is taken, and what is malformed matches nothing", () => {
    expect(match("/p/:project/person/:id", "/p/1/person/a%2Fb%20c")).toEqual({ project: "1", id: "a/b c" })
    expect(match("/p/:project/functions/:id/*", "/p/1/functions/x/configuration/")).toEqual({ project: "1", id: "x" })
    expect(match("/p/:project", "/p/1/2")).toBeNull()
    expect(match("/p/:project/person/:id", "/p/1/person/%E0%A4%A")).toBeNull()
  })
  it("what is made of parts is found again", () => {
    for (const id of ["a b", "ä/ö?#%", "..", "<img>", "日本"]) expect(match("/p/:project/person/:id", pathOf("p", 1, "person", id))).toEqual({ project: "1", id })
  })
  it("an empty value leaves the query", () => expect(withQuery(new URLSearchParams("a=1&b=2"), { a: null, b: "", c: "3" }).toString()).toBe("c=3"))
  it("live is no event", () => {
    expect(find({ path: "/p/1/events/live", query: new URLSearchParams() })?.route.pattern).toBe("/p/:project/events/live")
  })
  it("every address leads to one screen", () => {
    expect(find({ path: "/p/1/events/018f/2026-01-01", query: new URLSearchParams() })?.parts).toEqual({ project: "1", id: "018f", key2: "2026-01-01" })
    expect(new Set(ROUTES.map((route) => route.pattern)).size).toBe(ROUTES.length)
  })
  it("the project may be left out", () => {
    expect(withProject("/setup", 3)).toBe("/p/3/setup")
    expect(withProject("/experiments/7", 3)).toBe("/p/3/experiments/7")
    expect(withProject("/nowhere", 3)).toBeNull()
  })
  it("shortcuts", () => {
    expect(shortcutOf("g", "e")).toBe("/experiments")
    expect(shortcutOf("", "?")).toBe("help")
    expect(shortcutOf("", "e")).toBeNull()
  })
})

describe("scales", () => {
  it("ticks are round, in the range, and hold zero", () => {
    expect(ticks(-0.62, 0.62, 4)).toEqual([-0.5, 0, 0.5])
    expect(ticks(0, 3019, 3)).toEqual([0, 1000, 2000, 3000])
  })
  it("one wild interval does not flatten the others", () => expect(symmetric([0.1, 0.2, 0.15, 0.3, 50])).toBeLessThan(1))
  it("everything fits where nothing is wild", () => expect(symmetric([0.1, 0.2, 0.3])).toBeGreaterThan(0.3))
  it("forest axes are symmetric and read back", () => {
    const { scale, limit } = forestAxis([-0.2, 0.5], 300)
    expect(scale(0)).toBeCloseTo(150)
    expect(scale(limit) - 150).toBeCloseTo(150 - scale(-limit))
    const [a, b] = [scale(-0.1), scale(0.3)]
    expect(((b - a) / (scale(limit) - scale(-limit))) * 2 * limit).toBeCloseTo(0.4)
  })
  it("first wild days do not decide the range of a course", () => {
    const calm = Array.from({ length: 60 }, (_, at) => 0.1 + at / 1000)
    expect(courseRange([...calm, 40, -40])[1]).toBeLessThan(1)
    expect(courseRange([])[0]).toBeLessThan(0)
  })
  it("quantiles lie between neighbours", () => expect(quantile([0, 10], 0.25)).toBe(2.5))
  it("linear maps ends to ends, and a point to the start", () => {
    expect(linear([0, 10], [0, 100])(5)).toBe(50)
    expect(Number.isFinite(linear([1, 1], [0, 100])(1))).toBe(true)
  })
})

describe("days", () => {
  it("people per day are differences", () => expect(perDay([3, 3, 10])).toEqual([3, 0, 7]))
  it("a day without a result is a gap", () => {
    const point = { effect: 0, bounds: [0, 1] as const }
    expect(stretches([point, null, point, point]).map((each) => each.map(([at]) => at))).toEqual([[0], [2, 3]])
  })
  it("are named in their zone", () => {
    expect(dayText("2026-11-02")).toBe("Nov 2")
    expect(absolute(new Date("2026-03-09T23:30:00Z"), "Asia/Tokyo")).toContain("Mar 10, 2026")
    expect(absolute(new Date("2026-03-09T23:30:00Z"), "Nowhere/None")).toContain("Mar 9, 2026")
    expect(daysBetween(new Date("2026-03-09T12:00:00Z"), new Date("2026-03-11T11:00:00Z"))).toBe(1)
  })
  it("are told from now", () => {
    const now = new Date("2026-03-09T12:00:00Z")
    expect(ago(new Date("2026-03-09T11:57:00Z"), now)).toBe("3 min ago")
    expect(ago(new Date("2026-03-09T11:59:58Z"), now)).toBe("just now")
    expect(ago(new Date("2026-03-11T12:00:00Z"), now)).toBe("in 2 days")
  })
})

it("a microsecond later than what the API says", () => {
  for (const [moment, later] of [
    ["2026-01-02T03:04:05.678901Z", "2026-01-02T03:04:05.678902Z"],
    ["2026-01-02T03:04:05.1Z", "2026-01-02T03:04:05.100001Z"],
    ["2026-12-31T23:59:59.999999Z", "2027-01-01T00:00:00.000000Z"],
    ["2026-01-02T03:04:05Z", "2026-01-02T03:04:05.000001Z"],
    ["1969-12-31T23:59:59.5Z", "1969-12-31T23:59:59.500001Z"],
  ] as const)
    expect(justAfter(moment)).toBe(later)
})

it("what metrics count is named by nouns, in the right number", () => {
  const source = { kind: "EventsNode", event: "ticket opened" }
  const first = (definition: Record<string, unknown>) => definitionTexts({ ...definition }).slice(0, -1)
  const maths = { total: "number of", unique_session: "number of sessions with", unique_group: "number of groups with" }
  for (const [math, words] of Object.entries(maths)) {
    expect(first({ metric_type: "mean", source: { ...source, math } })).toEqual([`The ${words} “ticket opened”, per person.`])
  }
  const ratio = { metric_type: "ratio", numerator: { ...source, math: "sum", math_property: "cost" }, denominator: source }
  expect(first(ratio)).toEqual(["The sum of “cost” of “ticket opened”, divided by the number of “ticket opened”."])
  for (const [number, unit] of [[1, "1 day"], [2, "2 days"]] as const) {
    const windowed = first({ metric_type: "mean", source, conversion_window: number, conversion_window_unit: "day" })
    expect(windowed[1]).toBe(`It counts within ${unit} of the exposure.`)
  }
})

it("percentiles have the ending of their number", () => {
  const source = { kind: "EventsNode", event: "spent", math: "sum", math_property: "amount" }
  const said = (level: number) => definitionTexts({ metric_type: "quantile", quantile_level: level, source })[0]
  for (const [level, words] of [[0.5, "50th"], [0.01, "1st"], [0.07, "7th"], [0.11, "11th"], [0.92, "92nd"], [0.999, "99.9th"]] as const)
    expect(said(level)).toBe(`The ${words} percentile of the sum of “amount” of “spent”.`)
})

it("a method for one look warns before the planned end, and afterwards no more", () => {
  const verdict = { reads_at_any_time: false, state: "running", withholds_decisions: false, next_action: { code: "keep_running", text: "", variant: null }, reasons: [] as Parameters<typeof lookText>[0]["reasons"] } as const
  expect(lookText(verdict)).toContain("do not stop early")
  expect(lookText({ ...verdict, state: "better" })).toContain("This was it")
  const stopped = { code: "stopped_early", text: "", metric_uuid: null, variant: null }
  expect(lookText({ ...verdict, state: "inconclusive", reasons: [stopped] })).toContain("which was not reached")
  expect(lookText({ ...verdict, state: "better", withholds_decisions: true })).toContain("do not stop early")
  expect(lookText({ ...verdict, reads_at_any_time: true })).toContain("as often as you like")
  expect(lookText({ ...verdict, next_action: { ...verdict.next_action, code: "stop_for_harm" } })).toContain("you may act on it now")
})
