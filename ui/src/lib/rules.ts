// The rules of a flag in words.

import { list, object, text } from "./loose"

/** The condition sets of a flag in words, one line each. */
export function ruleTexts(filters: unknown): string[] {
  const found = object(filters)
  const groups = list(found.groups).map((group) => {
    const properties = list(group.properties)
    const share = typeof group.rollout_percentage === "number" ? group.rollout_percentage : 100
    const who = properties.length
      ? properties.map((each) => `${String(each.key)} ${String(each.operator ?? "exact")} ${valueText(each.value)}`).join(" and ")
      : "everybody"
    const forced = text(group.variant)
    return `${share} % of ${who}${forced ? ` get ${forced}` : ""}`
  })
  const variants = list(object(found.multivariate).variants).map((each) => `${String(each.key)} ${String(each.rollout_percentage)} %`)
  return variants.length ? [...groups, `variants: ${variants.join(", ")}`] : groups
}

function valueText(value: unknown): string {
  return Array.isArray(value) ? value.slice(0, 5).map(String).join(", ") : String(value ?? "")
}
