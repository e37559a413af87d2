// What a form can propose: events with how often they came, actions, cohorts and properties that were seen.

import { useEffect, useState } from "preact/hooks"
import { address, post } from "../../api/client"
import { useAddress, useGet } from "../../api/queryCache"
import { lacks } from "../../api/session"
import type { Proposals } from "../../filters/PropertyRow"
import { useProposals } from "../../filters/PropertyRow"
import { wireOfProperty } from "../../filters/property"
import { useSettled } from "../../kit/hooks"
import { counted } from "../../lib/format"
import { list, object } from "../../lib/loose"
import type { SourceDraft } from "./metric"

export const DAYS = 30
const EVENTS = 500
const ACTIONS = 200
const SEEN = `select event, count() as events, uniq(person_id) as people from events where timestamp > now() - interval ${DAYS} day group by event order by events desc limit ${EVENTS}`

export interface Seen {
  events: number
  people: number
}

export interface Lists {
  /** Events of the last days, the most frequent first; null: not known. */
  seen: ReadonlyMap<string, Seen> | null
  actions: ReadonlyMap<string, string>
  groups: readonly (readonly [string, string])[]
  proposals: Proposals
}

export function useLists(project: string): Lists {
  const [seen, setSeen] = useState<Lists["seen"]>(null)
  const mayAsk = lacks("query:read") === null
  useEffect(() => {
    if (!mayAsk) return
    post("/api/projects/{project_id}/query/", { project_id: project }, { query: { kind: "HogQLQuery", query: SEEN } }).then(
      (answer) => setSeen(new Map((answer.results ?? []).flatMap((row) => (Array.isArray(row) ? [[String(row[0]), { events: Number(row[1]), people: Number(row[2]) }] as const] : [])))),
      // Proposals are a help; without them names can still be typed.
      () => undefined,
    )
  }, [project])
  const actions = useAddress<unknown>(lacks("action:read") === null ? address("/api/projects/{project_id}/actions/", { project_id: project }, { limit: ACTIONS }) : null)
  const groups = useGet("/api/projects/{project_id}/groups_types/", lacks("group:read") === null ? { project_id: project } : null)
  const proposals = useProposals(project)
  return {
    seen,
    actions: new Map(list(object(actions.value).results).map(({ id, name }) => [String(id), String(name ?? id)])),
    groups: (groups.value ?? []).map((type) => [String(type.group_type_index), type.group_type] as const),
    proposals,
  }
}

/** The names of the properties that the newest events of a name have. */
export function useEventProperties(project: string, event: string): string[] {
  const wanted = useSettled(event.trim(), 300)
  const found = useGet("/api/projects/{project_id}/events/", wanted !== "" && lacks("query:read") === null ? { project_id: project } : null, { event: wanted, limit: 20 })
  return [...new Set((found.value?.results ?? []).flatMap((each) => Object.keys(object(each.properties))))].sort()
}

/** How often a source came in the last days, in words; null: that is not known. */
export function useCounted(project: string, source: SourceDraft, { seen, actions }: Lists): { text: string; isMissing: boolean } | null {
  const name = source.event.trim()
  const isFiltered = source.properties.length > 0
  const asks = source.kind === "EventsNode" && isFiltered && source.properties.every(({ key, type }) => key.trim() !== "" || type === "cohort")
  const query = asks ? JSON.stringify({ kind: "TrendsQuery", series: [{ kind: "EventsNode", event: name || null, math: "total", properties: source.properties.map(wireOfProperty) }], dateRange: { date_from: `-${DAYS}d` }, interval: "day" }) : ""
  const wanted = useSettled(query, 500)
  const [passed, setPassed] = useState<{ of: string; count: number | null } | null>(null)
  useEffect(() => {
    if (wanted === "" || lacks("query:read") !== null) return undefined
    let gone = false
    const told = (count: number | null) => gone || setPassed({ of: wanted, count })
    post("/api/projects/{project_id}/query/", { project_id: project }, { query: JSON.parse(wanted) as unknown }).then((answer) => {
      const [series] = answer.results ?? []
      told(series && !Array.isArray(series) ? series.data.reduce((sum, each) => sum + each, 0) : null)
    }, () => told(null))
    return () => {
      gone = true
    }
  }, [project, wanted])
  if (source.kind === "ActionsNode" && !actions.has(source.action)) return null
  if (source.kind !== "EventsNode" || (name === "" && !isFiltered)) return null
  if (isFiltered) return passed === null || passed.of !== query || passed.count === null ? null : { text: `last ${DAYS} days: ${counted(passed.count, "event")} with ${source.properties.length === 1 ? "this filter" : "these filters"}`, isMissing: passed.count === 0 }
  if (seen === null) return null
  const found = seen.get(name)
  if (found !== undefined) return { text: `last ${DAYS} days: ${counted(found.events, "event")} by ${counted(found.people, "person", "people")}`, isMissing: false }
  return seen.size < EVENTS ? { text: `last ${DAYS} days: no event of this name`, isMissing: true } : null
}
