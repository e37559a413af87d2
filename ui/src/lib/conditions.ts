// Property filters and the filters of functions, in words.

import { list, object, text } from "./loose"
import { conditionText } from "./rules"

/** Each property filter as words: "plan is pro", or the expression of a filter in Hog. */
export function conditionTexts(filters: readonly Record<string, unknown>[]): string[] {
  return filters.map((filter) => {
    if (filter.type === "hogql") return String(filter.key)
    const of = filter.type === "person" ? "the person's " : filter.type === "group" ? "the group's " : ""
    return `${of}${conditionText(filter)}`
  })
}

/** The events that a function runs on, in lines. */
export function functionFilterTexts(filters: unknown): string[] {
  const all = object(filters)
  const where = (source: Record<string, unknown>) => {
    const conditions = conditionTexts(list(source.properties))
    return conditions.length ? ` where ${conditions.join(" and ")}` : ""
  }
  const events = list(all.events).map((event) => {
    const name = text(event.id) ?? text(event.name)
    return `${name ? `Events “${name}”` : "All events"}${where(event)}`
  })
  const actions = list(all.actions).map((action) => `Events of the action “${text(action.name) ?? String(action.id)}”${where(action)}`)
  const sources = [...events, ...actions]
  const conditions = conditionTexts(list(all.properties))
  return [
    ...(sources.length ? sources : ["All events"]),
    ...(conditions.length ? [`Only where ${conditions.join(" and ")}`] : []),
    ...(all.filter_test_accounts === true ? ["Without events of internal and test accounts"] : []),
  ]
}
