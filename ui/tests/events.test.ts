import { expect, it } from "vitest"
import { pageAfter } from "../src/events/Explorer"
import { chosenOf, eventQuery, propertiesOf, trendOf, whereText } from "../src/events/filters"
import type { Event } from "../src/events/model"
import { functionOf, measures, metricOf } from "../src/events/payloads"
import { csvRow } from "../src/kit/saving"

const filter = (key: string, operator: string, value: string, type = "event") => ({ key, operator, value, type })

it("filters come back from the address as they went in, and unfinished ones filter nothing", () => {
  const where = [filter("plan", "exact", "pro"), filter("seats", "gt", "10"), filter("", "exact", ""), filter("name", "is_set", "", "person"), filter("x", "exact", "")]
  const query = new URLSearchParams({ event: "a", where: whereText(where) })
  expect(chosenOf(query).where).toEqual(where)
  expect(JSON.parse(propertiesOf(where))).toEqual([
    { key: "plan", operator: "exact", type: "event", value: ["pro"] },
    { key: "seats", operator: "gt", type: "event", value: "10" },
    { key: "name", operator: "is_set", type: "person", value: "is_set" },
  ])
  expect(propertiesOf([])).toBe("")
})

it("an address that somebody wrote by hand breaks nothing", () => {
  for (const text of ["[", "7", "null", "{}"]) expect(chosenOf(new URLSearchParams({ where: text })).where).toEqual([])
  expect(chosenOf(new URLSearchParams({ where: '[1,null,{"key":2}]' })).where).toEqual(Array(3).fill(filter("", "exact", "")))
})

it("equal questions of one minute have one address", () => {
  const chosen = chosenOf(new URLSearchParams({ range: "1h" }))
  expect(eventQuery(chosen, new Date("2026-01-02T10:20:31Z"))).toEqual(eventQuery(chosen, new Date("2026-01-02T10:20:59Z")))
  expect(eventQuery(chosen, new Date("2026-01-02T10:20:31Z")).after).toBe("2026-01-02T09:20:00.000Z")
})

it("a histogram asks for what the list shows", () => {
  const { query } = trendOf(chosenOf(new URLSearchParams({ event: "a", range: "24h", where: whereText([filter("plan", "exact", "pro")]) })))
  expect(query).toMatchObject({ kind: "TrendsQuery", interval: "hour", dateRange: { date_from: "-24h" }, series: [{ event: "a", properties: [{ key: "plan" }] }] })
})

it("metrics and functions of an event", () => {
  const event = { event: "paid", properties: { amount: 3, plan: "pro", $screen_width: 7 } }
  expect(measures(event).map(({ key }) => key)).toEqual(["people", "count", "sum amount"])
  expect(metricOf(event, measures(event)[2], "Paid", "increase")).toMatchObject({ metric_type: "mean", source: { event: "paid", math: "sum", math_property: "amount" } })
  expect(metricOf(event, measures(event)[0], "Paid", "decrease")).toMatchObject({ metric_type: "funnel", goal: "decrease", series: [{ event: "paid" }] })
  expect(functionOf(event, "n", "https://x", false)).toMatchObject({ enabled: false, filters: { events: [{ id: "paid" }] }, inputs: { url: { value: "https://x" } } })
})

it("a spreadsheet takes no cell for a formula", () => {
  expect(csvRow(["=1+1", "+a", "-a", "@a", "a,b", 'say "a"', -3, null])).toBe(`'=1+1,'+a,'-a,'@a,"a,b","say ""a""",-3,`)
})

it("the next page begins where this one ends, also amid events of one moment", () => {
  const event = (timestamp: string) => ({ timestamp }) as Event
  expect(pageAfter([])).toEqual({})
  const same = "2026-01-02T03:04:05.999999Z"
  expect(pageAfter([event("2026-01-02T03:04:06Z"), event(same), event(same)])).toEqual({ before: "2026-01-02T03:04:06.000000Z", offset: 2 })
})
