// Metrics and functions of an event, as the API takes them.

import type { Event } from "./model"

const WEBHOOK = "template-webhook"

export interface Measure {
  key: string
  text: string
  /** The property whose values are added; null: the event itself counts. */
  property: string | null
}

/** What can be measured of an event: who does it, how often, and the sum of each of its numbers. */
export function measures(event: Pick<Event, "properties">): Measure[] {
  const numbers = Object.entries(event.properties).filter(([key, value]) => typeof value === "number" && !key.startsWith("$"))
  return [
    { key: "people", text: "the share of people who do it", property: null },
    { key: "count", text: "how often each person does it", property: null },
    ...numbers.slice(0, 20).map(([key]) => ({ key: `sum ${key}`, text: `the sum of “${key}” of each person`, property: key })),
  ]
}

/** A metric as experiments take it. */
export function metricOf(event: Pick<Event, "event">, measure: Measure | undefined, name: string, goal: string): object {
  const source = { kind: "EventsNode", event: event.event }
  const metric = { kind: "ExperimentMetric", name, goal }
  if (measure === undefined || measure.key === "people") return { ...metric, metric_type: "funnel", series: [source] }
  const maths = measure.property === null ? { math: "total" } : { math: "sum", math_property: measure.property }
  return { ...metric, metric_type: "mean", source: { ...source, ...maths } }
}

/** A webhook that gets each event of this name. */
export function functionOf(event: Pick<Event, "event">, name: string, url: string, enabled: boolean): object {
  return {
    type: "destination",
    template_id: WEBHOOK,
    name,
    enabled,
    inputs: { url: { value: url } },
    filters: { source: "events", events: [{ id: event.event, name: event.event, type: "events" }] },
  }
}
