// A flag while it is edited: the draft, what it is on the wire, what is wrong with it, and how it differs from what is stored.

import { type Difference, differing } from "../kit/differences"
import { type PropertyDraft, propertyOf, wireOfProperty } from "../filters/property"
import type { Json } from "../lib/loose"
import { list, object, text } from "../lib/loose"
import { conditionText } from "../lib/rules"
import { sumOf, type VariantDraft } from "../lib/split"
import type { Flag } from "./model"

export interface ConditionDraft {
  properties: readonly PropertyDraft[]
  share: string
  /** The variant that everybody of this condition gets; empty: one is drawn. */
  variant: string
  rest: Json
}

export interface Draft {
  key: string
  name: string
  tags: string
  persists: boolean
  /** The type of groups that it decides by; empty: people. */
  by: string
  conditions: readonly ConditionDraft[]
  variants: readonly VariantDraft[]
  /** JSON texts by variant; of a flag without variants, of "true". */
  payloads: Readonly<Record<string, string>>
}

export const NO_CONDITION: ConditionDraft = { properties: [], share: "100", variant: "", rest: {} }
export const NEW: Draft = { key: "", name: "", tags: "", persists: false, by: "", conditions: [{ ...NO_CONDITION, share: "0" }], variants: [], payloads: {} }

function conditionOf({ properties, rollout_percentage: share, variant, ...rest }: Json): ConditionDraft {
  return { properties: list(properties).map(propertyOf), share: typeof share === "number" ? String(share) : "100", variant: text(variant) ?? "", rest }
}

export function draftOf(flag: Flag): Draft {
  const { filters } = flag
  const by = filters.aggregation_group_type_index
  return {
    key: flag.key,
    name: flag.name,
    tags: flag.tags.join(", "),
    persists: flag.ensure_experience_continuity === true,
    by: typeof by === "number" ? String(by) : "",
    conditions: list(filters.groups).map(conditionOf),
    variants: list(object(filters.multivariate).variants).map(({ key, rollout_percentage: share, ...rest }) => ({ key: String(key ?? ""), share: String(share ?? 0), rest })),
    payloads: Object.fromEntries(Object.entries(object(filters.payloads)).map(([key, value]) => [key, typeof value === "string" ? value : JSON.stringify(value)])),
  }
}

function tagsOf(tags: string): string[] {
  return [...new Set(tags.split(",").map((tag) => tag.trim()).filter(Boolean))]
}

function wireOfCondition({ properties, share, variant, rest }: ConditionDraft, by: number | null, was: number | null): Json {
  const own = rest.aggregation_group_type_index
  // A condition of its own kind keeps that; the others follow the flag.
  const kind = own === undefined || own === was || own === null ? { aggregation_group_type_index: by } : {}
  return {
    ...rest,
    ...kind,
    properties: properties.map(wireOfProperty),
    rollout_percentage: Number(share),
    variant: variant || null,
  }
}

/** The fields of a flag on the wire. `was`: the type of groups that it decided by. */
function wireOf(draft: Draft, was: string): { fields: Json; filters: Json } {
  const kind = (by: string) => (by === "" ? null : Number(by))
  const keys = new Set(draft.variants.length ? draft.variants.map(({ key }) => key) : ["true"])
  const payloads = Object.entries(draft.payloads).filter(([key, value]) => keys.has(key) && value.trim() !== "")
  return {
    fields: { key: draft.key.trim(), name: draft.name, tags: tagsOf(draft.tags), ensure_experience_continuity: draft.persists },
    filters: {
      aggregation_group_type_index: kind(draft.by),
      groups: draft.conditions.map((condition) => wireOfCondition(condition, kind(draft.by), kind(was))),
      multivariate: draft.variants.length ? { variants: draft.variants.map(({ key, share, rest }) => ({ ...rest, key: key.trim(), rollout_percentage: Number(share) })) } : null,
      payloads: Object.fromEntries(payloads),
    },
  }
}

/** What has to be sent to make the stored flag (null: there is none) like the draft; empty: nothing. */
export function changesOf(stored: Flag | null, draft: Draft): Json {
  const before = stored && draftOf(stored)
  const now = wireOf(draft, before?.by ?? "")
  if (before === null) return { ...now.fields, filters: now.filters }
  const was = wireOf(before, before.by)
  const changed = (old: Json, current: Json) => Object.fromEntries(Object.entries(current).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(old[name])))
  const filters = changed(was.filters, now.filters)
  return { ...changed(was.fields, now.fields), ...(Object.keys(filters).length > 0 && { filters }) }
}

/** What cannot be saved, by the field that has it. */
export function problemsOf(draft: Draft): Record<string, string> {
  const found: Record<string, string> = {}
  const isShare = (share: string) => share.trim() !== "" && Number(share) >= 0 && Number(share) <= 100
  if (!/^[a-zA-Z0-9_-]+$/.test(draft.key.trim())) found.key = "A key has letters, digits, hyphens and underscores."
  if (draft.conditions.length === 0) found.groups = "Add a condition. Without one nobody can get the flag."
  draft.conditions.forEach(({ share, properties }, at) => {
    if (!isShare(share)) found[`groups[${at}]`] = "The rollout is a number from 0 to 100."
    else if (properties.some(({ key, type }) => key.trim() === "" && type !== "cohort")) found[`groups[${at}]`] = "A filter has no property yet."
  })
  const keys = draft.variants.map(({ key }) => key.trim())
  const sum = sumOf(draft.variants)
  if (keys.some((key) => key === "")) found.multivariate = "Every variant needs a key."
  else if (new Set(keys).size < keys.length) found.multivariate = "Two variants have the same key."
  else if (draft.variants.some(({ share }) => !isShare(share))) found.multivariate = "The share of a variant is a number from 0 to 100."
  else if (keys.length > 0 && Math.abs(sum - 100) > 1e-9) found.multivariate = `The shares sum to ${sum}. They must sum to 100.`
  for (const [key, value] of Object.entries(draft.payloads)) {
    if (value.trim() === "" || !(keys.length ? keys : ["true"]).includes(key)) continue
    try {
      JSON.parse(value)
    } catch (error) {
      found[`payloads.${key}`] = `This is not valid JSON: ${(error as Error).message}`
    }
  }
  return found
}

/** One condition as a sentence: "25% of people where plan is pro get test". */
export function sentenceOf({ share, properties, variant }: ConditionDraft, names: ReadonlyMap<string, string>, by: string): string {
  const who = by === "" ? "people" : "groups"
  const where = properties.map(({ type, key, operator, value }) => conditionText({ type, key: type === "flag" ? (names.get(key) ?? key) : key, operator, value, cohort_name: names.get(`cohort ${String(value)}`) }))
  return `${share}% of ${properties.length ? who : by === "" ? "everyone" : "all groups"}${where.length ? ` where ${where.join(" and ")}` : ""}${variant ? ` get ${variant}` : ""}`
}

function linesOf(draft: Draft, names: ReadonlyMap<string, string>): Map<string, string> {
  const lines: [string, string][] = [["Key", draft.key], ["Name", draft.name], ["Tags", tagsOf(draft.tags).join(", ")], ["Decides by", draft.by === "" ? "people" : (names.get(`type ${draft.by}`) ?? `groups of type ${draft.by}`)]]
  draft.conditions.forEach((condition, at) => lines.push([`Condition ${at + 1}`, sentenceOf(condition, names, draft.by)]))
  lines.push(["Variants", draft.variants.map(({ key, share }) => `${key} ${share}%`).join(", ")])
  for (const [key, value] of Object.entries(draft.payloads)) lines.push([draft.variants.length ? `Payload of ${key}` : "Payload", value])
  lines.push(["Kept at log-in", draft.persists ? "yes" : "no"])
  return new Map(lines)
}

/** What differs between two states of a flag, in words. */
export function differencesOf(before: Draft, after: Draft, names: ReadonlyMap<string, string>): Difference[] {
  return differing(linesOf(before, names), linesOf(after, names))
}

/** Where a refusal of the API belongs, and its text: the API names the place in the filters before the text. */
export function faultOf(attr: string | null, detail: string): [string, string] {
  if (attr !== "filters") return [attr ?? "", detail]
  const [, path = "", rest = detail] = /^(?:filters\.)?((?:groups|multivariate|payloads)[^:\s]*):? (.*)$/s.exec(detail) ?? []
  const place = path.startsWith("groups[") ? path.slice(0, path.indexOf("]") + 1) : path.startsWith("multivariate") ? "multivariate" : path
  return [place || "filters", rest]
}
