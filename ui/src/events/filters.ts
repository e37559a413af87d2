// The filters of events as they are in the address and on the wire.

import type { Query } from "../api/client"

export const OPERATORS = [["exact", "is"], ["is_not", "is not"], ["icontains", "contains"], ["gt", "is greater than"], ["lt", "is less than"], ["is_set", "is set"], ["is_not_set", "is not set"]] as const
export const RANGES = [["1h", "Last hour"], ["24h", "Last 24 hours"], ["7d", "Last 7 days"], ["30d", "Last 30 days"], ["", "Any time"]] as const
const RANGE_MS: Record<string, number> = { "1h": 3_600_000, "24h": 86_400_000, "7d": 604_800_000, "30d": 2_592_000_000 }
const MOST_FILTERS = 20

export interface PropertyFilter {
  key: string
  operator: string
  value: string
  type: string
}

export const NO_FILTER: PropertyFilter = { key: "", operator: "exact", value: "", type: "event" }

export interface Chosen {
  event: string
  distinctId: string
  /** All of them have to let an event through; unfinished ones let through everything. */
  where: readonly PropertyFilter[]
  range: string
}

export function chosenOf(query: URLSearchParams): Chosen {
  const of = (name: string) => query.get(name) ?? ""
  return { event: of("event"), distinctId: of("distinct_id"), where: whereOf(of("where")), range: of("range") }
}

function whereOf(text: string): PropertyFilter[] {
  let found: unknown
  try {
    found = JSON.parse(text || "[]")
  } catch {
    return []
  }
  if (!Array.isArray(found)) return []
  const filter = (each: unknown): PropertyFilter => {
    const given = (typeof each === "object" && each !== null ? each : {}) as Record<string, unknown>
    const of = (name: keyof PropertyFilter) => (typeof given[name] === "string" ? String(given[name]) : NO_FILTER[name])
    return { key: of("key"), operator: of("operator"), value: of("value"), type: of("type") }
  }
  return found.slice(0, MOST_FILTERS).map(filter)
}

/** The filters as the address keeps them; empty where there are none. */
export function whereText(where: readonly PropertyFilter[]): string {
  return where.length ? JSON.stringify(where) : ""
}

export function needsValue(operator: string): boolean {
  return operator !== "is_set" && operator !== "is_not_set"
}

/** The property filters as the API takes them; empty where none is finished. */
export function propertiesOf(where: readonly PropertyFilter[]): string {
  const finished = where.filter(({ key, operator, value }) => key !== "" && (value !== "" || !needsValue(operator)))
  const wire = finished.map(({ key, operator, value, type }) => {
    const list = operator === "exact" || operator === "is_not"
    return { key, operator, type, value: needsValue(operator) ? (list ? [value] : value) : operator }
  })
  return wire.length ? JSON.stringify(wire) : ""
}

// What the histogram counts for each choice of time: from when, in which steps, and the words for it.
const STEPS: Record<string, readonly [string, string, string]> = {
  "1h": ["-1h", "minute", "in the last hour, by minute"],
  "24h": ["-24h", "hour", "in the last 24 hours, by hour"],
  "7d": ["-7d", "hour", "in the last 7 days, by hour"],
  "30d": ["-30d", "day", "in the last 30 days, by day"],
}
const ANY_TIME = ["-90d", "day", "in the last 90 days, by day"] as const

/** The question of a histogram over the chosen events, and what it answers in words. */
export function trendOf({ event, where, range }: Chosen): { query: object; words: string } {
  const [from, interval, words] = STEPS[range] ?? ANY_TIME
  const properties: unknown = JSON.parse(propertiesOf(where) || "[]")
  const series = [{ kind: "EventsNode", event: event || null, math: "total", properties }]
  return { query: { kind: "TrendsQuery", series, dateRange: { date_from: from }, interval }, words }
}

/** The query of a list of events. The start is rounded to the minute, so that equal questions have one address. */
export function eventQuery(chosen: Chosen, now: Date): Query {
  const width = RANGE_MS[chosen.range]
  const after = width === undefined ? "" : new Date(Math.floor((now.getTime() - width) / 60_000) * 60_000).toISOString()
  return { event: chosen.event, distinct_id: chosen.distinctId, properties: propertiesOf(chosen.where), after }
}
