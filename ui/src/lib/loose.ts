// JSON whose shape nobody promises: what is not as expected reads as nothing.

export type Json = Record<string, unknown>

/** What may be an object, as one. */
export function object(value: unknown): Json {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Json) : {}
}

/** What may be a list of objects, as one. */
export function list(value: unknown): Json[] {
  return Array.isArray(value) ? value.map(object) : []
}

/** A text that says something. */
export const text = (value: unknown): string | null => (typeof value === "string" && value !== "" ? value : null)
