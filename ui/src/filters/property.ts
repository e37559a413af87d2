// A property filter while it is edited: the draft, and what it is on the wire.

import { type Json, text } from "../lib/loose"
import { WITHOUT_VALUE } from "../lib/rules"

export interface PropertyDraft {
  type: string
  key: string
  operator: string
  value: unknown
  /** What the wire has besides, kept as it is. */
  rest: Json
}

const LISTS: ReadonlySet<string> = new Set(["exact", "is_not"])
export const NO_PROPERTY: PropertyDraft = { type: "person", key: "", operator: "exact", value: [], rest: {} }

export function propertyOf({ type, key, operator, value, ...rest }: Json): PropertyDraft {
  const kind = text(type) ?? "person"
  return { type: kind, key: String(key ?? ""), operator: text(operator) ?? (kind === "cohort" ? "in" : "exact"), value, rest }
}

export function wireOfProperty({ type, key, operator, value, rest }: PropertyDraft): Json {
  return { ...rest, type, key: type === "cohort" ? "id" : key, operator, ...(!WITHOUT_VALUE.has(operator) && { value }) }
}

/** A condition's value as a field shows it: lists by commas. */
export function shownValue(value: unknown): string {
  return Array.isArray(value) ? value.map(String).join(", ") : String(value ?? "")
}

/** What somebody typed as a value, as the operator takes it. */
export function typedValue(written: string, { type, operator }: Pick<PropertyDraft, "type" | "operator">): unknown {
  if (type === "flag") return written === "true" ? true : written === "false" ? false : written
  if (type === "cohort") return Number(written) || 0
  return LISTS.has(operator) ? written.split(",").map((part) => part.trim()).filter(Boolean) : written
}
