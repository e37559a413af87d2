// The rules of a flag in words.

import { list, object, text } from "./loose"

/** The condition sets of a flag in words, one line each. */
export function ruleTexts(filters: unknown): string[] {
  const found = object(filters)
  const groups = list(found.groups).map((group) => {
    const properties = list(group.properties)
    const share = shareOf(group)
    const who = properties.length
      ? properties.map((each) => conditionText(each)).join(" and ")
      : "everybody"
    const forced = text(group.variant)
    return `${share}% of ${who}${forced ? ` get ${forced}` : ""}`
  })
  const variants = list(object(found.multivariate).variants).map((each) => `${String(each.key)} ${String(each.rollout_percentage)}%`)
  return variants.length ? [...groups, `variants: ${variants.join(", ")}`] : groups
}

/** Who a flag is on for, as short as a list has room: "25% of everyone", "everyone where plan is pro", "3 conditions". */
export function rolloutText(filters: unknown): string {
  const { groups, aggregation_group_type_index: byGroup } = object(filters)
  const conditions = list(groups)
  const reached = conditions.filter((condition) => shareOf(condition) > 0)
  const all = typeof byGroup === "number" ? "all groups" : "everyone"
  const [first] = reached
  if (first === undefined) return "nobody"
  if (reached.some((condition) => shareOf(condition) === 100 && list(condition.properties).length === 0)) return all
  if (conditions.length > 1) return `${conditions.length} conditions`
  const properties = list(first.properties)
  const share = shareOf(first) === 100 ? all : `${shareOf(first)}% of ${all}`
  if (properties.length === 0) return share
  const more = properties.length > 1 ? ` and ${properties.length - 1} more` : ""
  return `${share} where ${conditionText(properties[0] ?? {})}${more}`
}

/** The share of a condition in percent; without one it is everybody. */
export function shareOf(condition: Record<string, unknown>): number {
  return typeof condition.rollout_percentage === "number" ? condition.rollout_percentage : 100
}

export const OPERATORS: Record<string, string> = {
  exact: "is", is_not: "is not", icontains: "contains", not_icontains: "does not contain", regex: "matches", not_regex: "does not match",
  gt: "is greater than", gte: "is at least", lt: "is less than", lte: "is at most", is_set: "is set", is_not_set: "is not set",
  is_date_before: "is before", is_date_after: "is after", is_date_exact: "is on", in: "is in", not_in: "is not in", flag_evaluates_to: "is",
  between: "is between", not_between: "is not between",
}
export const WITHOUT_VALUE: ReadonlySet<string> = new Set(["is_set", "is_not_set"])
const OF: Record<string, string> = { cohort: "cohort ", flag: "flag " }

/** One condition: "plan is pro", "email is not set". */
export function conditionText(condition: Record<string, unknown>): string {
  const operator = String(condition.operator ?? (condition.type === "cohort" ? "in" : "exact"))
  const words = OPERATORS[operator] ?? operator.replaceAll("_", " ")
  if (condition.type === "cohort") return `${words} cohort ${text(condition.cohort_name) ?? valueText(condition.value)}`
  const name = `${OF[String(condition.type)] ?? ""}${String(condition.key)}`
  return WITHOUT_VALUE.has(operator) ? `${name} ${words}` : `${name} ${words} ${valueText(condition.value)}`
}

function valueText(value: unknown): string {
  return Array.isArray(value) ? value.slice(0, 5).map(String).join(", ") : String(value ?? "")
}
