// What the screens of flags know of one, from what the API says of it.

import type { Query, Schemas } from "../api/client"
import { counted } from "../lib/format"
import { list, object } from "../lib/loose"
import { rolloutText } from "../lib/rules"

export type Flag = Schemas["FlagOut"]

export const FLAGS = "/api/projects/{project_id}/feature_flags/"
export const FLAG = "/api/projects/{project_id}/feature_flags/{flag_id}/"
export const PAGE = 50
export const DEFAULT_ORDER = "-created_at"

/** The query of the list, as the address has it. */
export function listQuery(query: URLSearchParams, me: number | undefined): Query {
  const value = (name: string) => query.get(name) ?? ""
  const tag = value("tag")
  return {
    limit: PAGE,
    offset: Number(value("offset")) || 0,
    order: value("order") || DEFAULT_ORDER,
    search: value("search"),
    active: value("active"),
    type: value("type"),
    archived: value("archived"),
    created_by_id: value("by") === "me" ? me : value("by"),
    tags: tag && JSON.stringify([tag]),
  }
}

/** The running experiments that a flag decides. */
export function runningOf(flag: Flag): string[] {
  return flag.experiment_set_metadata.filter((experiment) => experiment.is_running).map((experiment) => experiment.name)
}

/** "everyone, 3 variants": who gets a flag while it is on, and between how many variants they are split. */
export function givenTo(flag: Pick<Flag, "filters" | "is_remote_configuration">): string {
  const count = list(object(flag.filters.multivariate).variants).length
  const variants = count > 0 ? `, ${counted(count, "variant")}` : ""
  return flag.is_remote_configuration ? "a setting" : `${rolloutText(flag.filters)}${variants}`
}

/** What follows from switching a flag on or off, in sentences. */
export function switching(flag: Flag): string[] {
  const running = runningOf(flag)
  const stops = running.map((name) => `The experiment “${name}” is running. Nobody new joins it while the flag is off, and people lose their variant.`)
  if (flag.active) return [`Nobody gets the flag any more. Now it is on for ${givenTo(flag)}.`, "SDKs see the change the next time they ask.", ...stops]
  return [`The flag is on for ${givenTo(flag)}.`, "SDKs see the change the next time they ask."]
}
