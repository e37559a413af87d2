// One property filter as a row of fields, with what can be chosen proposed.

import { useId } from "preact/hooks"
import { address, type Schemas } from "../api/client"
import { useAddress, useGet } from "../api/queryCache"
import { lacks } from "../api/session"
import { Button } from "../kit/basics"
import { visible } from "../lib/format"
import { OPERATORS, WITHOUT_VALUE } from "../lib/rules"
import { type PropertyDraft, shownValue, typedValue } from "./property"

export type Kind = "event" | "person" | "group" | "cohort" | "flag"

const KIND_WORDS: Record<string, string> = { event: "event's", person: "person's", group: "group's" }
const OF_KIND: Record<string, readonly string[]> = { cohort: ["in", "not_in"], flag: ["flag_evaluates_to"] }
const OF_PROPERTIES = Object.keys(OPERATORS).filter((operator) => !["in", "not_in", "flag_evaluates_to"].includes(operator))
const FLAGS = "/api/projects/{project_id}/feature_flags/"
const NAMES = 200

export interface Proposals {
  properties: readonly string[]
  /** Of the events that are filtered. */
  eventProperties?: readonly string[]
  cohorts: readonly (readonly [string, string])[]
  flags: readonly Schemas["FlagOut"][]
}

/** What can be proposed: properties of the newest people, cohorts, and flags. */
export function useProposals(project: string): Proposals {
  const where = (scope: string) => (lacks(scope) === null ? { project_id: project } : null)
  const people = useGet("/api/projects/{project_id}/persons/", where("person:read"), { limit: 100 })
  const flags = useGet(FLAGS, where("feature_flag:read"), { limit: NAMES })
  const cohorts = useAddress<{ results: { id: number; name: string | null }[] }>(lacks("cohort:read") === null ? address("/api/projects/{project_id}/cohorts/", { project_id: project }, { limit: NAMES }) : null)
  return {
    properties: [...new Set((people.value?.results ?? []).flatMap((person) => Object.keys(person.properties ?? {})))].sort().slice(0, NAMES),
    cohorts: (cohorts.value?.results ?? []).map(({ id, name }) => [String(id), name ?? `cohort ${id}`] as const),
    flags: flags.value?.results ?? [],
  }
}

interface RowProps {
  number: number
  property: PropertyDraft
  proposals: Proposals
  /** The kinds that can be chosen. */
  kinds: readonly Kind[]
  names: ReadonlyMap<string, string>
  set: (changes: Partial<PropertyDraft>) => void
  remove: () => void
}

export function PropertyRow({ number, property, proposals, kinds, names, set, remove }: RowProps) {
  const id = useId()
  const { type, operator } = property
  const operators = OF_KIND[type] ?? OF_PROPERTIES
  const options = kinds.some((kind) => kind === type) ? kinds : [...kinds, type]
  const become = (kind: string) => set({ type: kind, key: kind === "cohort" ? "id" : "", operator: OF_KIND[kind]?.[0] ?? "exact", value: kind === "flag" ? true : kind === "cohort" ? Number(proposals.cohorts[0]?.[0] ?? 0) : [] })
  const operate = (wanted: string) => set({ operator: wanted, value: WITHOUT_VALUE.has(wanted) ? wanted : typedValue(WITHOUT_VALUE.has(operator) ? "" : shownValue(property.value), { type, operator: wanted }) })
  const dependency = type === "flag" ? proposals.flags.find((flag) => String(flag.id) === property.key || flag.key === property.key) : undefined
  return (
    <div class="filters property-filter" role="group" aria-label={`Filter ${number}`}>
      <label class="filter">
        <span>{number === 1 ? "where the" : "and the"}</span>
        <select value={type} onChange={(event) => become(event.currentTarget.value)}>
          {options.map((kind) => (
            <option key={kind} value={kind}>
              {KIND_WORDS[kind] ?? kind.replaceAll("_", " ")}
            </option>
          ))}
        </select>
      </label>
      {type !== "cohort" && (
        <>
          <input class="of" aria-label={type === "flag" ? "Flag" : "Property"} list={id} autocomplete="off" value={type === "flag" ? (names.get(property.key) ?? dependency?.key ?? property.key) : property.key} onInput={(event) => set({ key: event.currentTarget.value })} />
          <datalist id={id}>
            {(type === "flag" ? proposals.flags.map(({ key }) => key) : type === "person" ? proposals.properties : type === "event" ? (proposals.eventProperties ?? []) : []).map((name) => (
              <option key={name} value={name} />
            ))}
          </datalist>
        </>
      )}
      <select aria-label="Operator" value={operator} onChange={(event) => operate(event.currentTarget.value)}>
        {(operators.includes(operator) ? operators : [...operators, operator]).map((name) => (
          <option key={name} value={name}>
            {OPERATORS[name] ?? name.replaceAll("_", " ")}
          </option>
        ))}
      </select>
      {type === "cohort" ? (
        <select aria-label="Cohort" value={shownValue(property.value)} onChange={(event) => set({ value: typedValue(event.currentTarget.value, property) })}>
          {[...proposals.cohorts, ...(proposals.cohorts.some(([cohort]) => cohort === shownValue(property.value)) ? [] : [[shownValue(property.value), `cohort ${shownValue(property.value)}`] as const])].map(([cohort, name]) => (
            <option key={cohort} value={cohort}>
              {visible(name.slice(0, 60))}
            </option>
          ))}
        </select>
      ) : (
        !WITHOUT_VALUE.has(operator) && <Value property={property} set={set} />
      )}
      <Button kind="quiet" label={`Remove filter ${number}`} onClick={remove}>
        Remove
      </Button>
    </div>
  )
}

/** A field for the value; what is typed stays as it is typed, with its commas. */
function Value({ property, set }: Pick<RowProps, "property" | "set">) {
  const hint = property.type === "flag" ? "true, false or a variant" : property.operator === "exact" || property.operator === "is_not" ? "several by commas" : undefined
  return <input key={property.operator} class="of" aria-label="Value" autocomplete="off" placeholder={hint} defaultValue={shownValue(property.value)} onInput={(event) => set({ value: typedValue(event.currentTarget.value, property) })} />
}
