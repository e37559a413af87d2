// The conditions of a flag as rows that can be changed, each with its sentence above.

import { useId } from "preact/hooks"
import { address } from "../api/client"
import { useAddress, useGet } from "../api/queryCache"
import { lacks } from "../api/session"
import { Button } from "../kit/basics"
import { clipped, visible } from "../lib/format"
import { OPERATORS, WITHOUT_VALUE } from "../lib/rules"
import { type ConditionDraft, type Draft, NO_CONDITION, NO_PROPERTY, type PropertyDraft, sentenceOf, shownValue, typedValue } from "./draft"
import { type Flag, FLAGS } from "./model"

const KINDS = [["person", "person's"], ["group", "group's"], ["cohort", "cohort"], ["flag", "flag"]] as const
const OF_KIND: Record<string, readonly string[]> = { cohort: ["in", "not_in"], flag: ["flag_evaluates_to"] }
const OF_PROPERTIES = Object.keys(OPERATORS).filter((operator) => !["in", "not_in", "flag_evaluates_to"].includes(operator))
const NAMES = 200

interface Props {
  draft: Draft
  change: (changes: Partial<Draft>) => void
  names: ReadonlyMap<string, string>
  fault: (place: string) => string | null
  project: string
}

export function Conditions({ draft, change, names, fault, project }: Props) {
  const lists = useNames(project)
  const set = (at: number, changed: Partial<ConditionDraft>) => change({ conditions: draft.conditions.map((condition, index) => (index === at ? { ...condition, ...changed } : condition)) })
  const swap = (at: number) => {
    const next = [...draft.conditions]
    next.splice(at - 1, 2, ...next.slice(at - 1, at + 1).reverse())
    change({ conditions: next })
  }
  return (
    <section class="card" aria-label="Conditions">
      <h2>Who gets it</h2>
      <p class="quiet">The first condition that matches decides. Within a condition all filters must match, then the rollout draws a fixed share.</p>
      {fault("groups") && <p class="fault">{fault("groups")}</p>}
      {draft.conditions.map((condition, at) => (
        <fieldset key={at} class="condition">
          <legend>Condition {at + 1}</legend>
          <p>{clipped(sentenceOf(condition, names, draft.by), 400)}</p>
          {condition.properties.map((property, place) => (
            <Property
              key={place}
              number={place + 1}
              property={property}
              lists={lists}
              names={names}
              set={(changed) => set(at, { properties: condition.properties.map((other, index) => (index === place ? { ...other, ...changed } : other)) })}
              remove={() => set(at, { properties: condition.properties.filter((_, index) => index !== place) })}
            />
          ))}
          <div class="filters">
            <label class="filter">
              <span>Rollout</span>
              <input type="range" min="0" max="100" aria-label={`Rollout of condition ${at + 1} as a slider`} value={condition.share} onInput={(event) => set(at, { share: event.currentTarget.value })} />
              <input class="share" inputmode="decimal" aria-label={`Rollout of condition ${at + 1} in percent`} value={condition.share} onInput={(event) => set(at, { share: event.currentTarget.value })} />
              <span>%</span>
            </label>
            {draft.variants.length > 0 && (
              <label class="filter">
                <span>Variant</span>
                <select value={condition.variant} onChange={(event) => set(at, { variant: event.currentTarget.value })}>
                  <option value="">as the shares say</option>
                  {draft.variants.map(({ key }) => (
                    <option key={key} value={key}>
                      {clipped(key, 60)}
                    </option>
                  ))}
                </select>
              </label>
            )}
          </div>
          {fault(`groups[${at}]`) && <p class="fault">{fault(`groups[${at}]`)}</p>}
          <div class="row-buttons">
            <Button kind="quiet" onClick={() => set(at, { properties: [...condition.properties, draft.by === "" ? NO_PROPERTY : { ...NO_PROPERTY, type: "group", rest: { group_type_index: Number(draft.by) } }] })}>
              Add a filter
            </Button>
            <Button kind="quiet" label={`Copy condition ${at + 1}`} onClick={() => change({ conditions: [...draft.conditions.slice(0, at + 1), condition, ...draft.conditions.slice(at + 1)] })}>
              Copy
            </Button>
            {at > 0 && (
              <Button kind="quiet" label={`Move condition ${at + 1} up`} onClick={() => swap(at)}>
                Move up
              </Button>
            )}
            {draft.conditions.length > 1 && (
              <Button kind="quiet" label={`Remove condition ${at + 1}`} onClick={() => change({ conditions: draft.conditions.filter((_, index) => index !== at) })}>
                Remove
              </Button>
            )}
          </div>
        </fieldset>
      ))}
      <Button onClick={() => change({ conditions: [...draft.conditions, NO_CONDITION] })}>Add a condition</Button>
    </section>
  )
}

interface Lists {
  properties: readonly string[]
  cohorts: readonly (readonly [string, string])[]
  flags: readonly Flag[]
}

/** What can be proposed: properties of the newest people, cohorts, and flags. */
function useNames(project: string): Lists {
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

interface PropertyProps {
  number: number
  property: PropertyDraft
  lists: Lists
  names: ReadonlyMap<string, string>
  set: (changes: Partial<PropertyDraft>) => void
  remove: () => void
}

function Property({ number, property, lists, names, set, remove }: PropertyProps) {
  const id = useId()
  const { type, operator } = property
  const operators = OF_KIND[type] ?? OF_PROPERTIES
  const kinds = KINDS.some(([kind]) => kind === type) ? KINDS : [...KINDS, [type, type.replaceAll("_", " ")] as const]
  const become = (kind: string) => set({ type: kind, key: kind === "cohort" ? "id" : "", operator: OF_KIND[kind]?.[0] ?? "exact", value: kind === "flag" ? true : kind === "cohort" ? Number(lists.cohorts[0]?.[0] ?? 0) : [] })
  const operate = (wanted: string) => set({ operator: wanted, value: WITHOUT_VALUE.has(wanted) ? wanted : typedValue(WITHOUT_VALUE.has(operator) ? "" : shownValue(property.value), { type, operator: wanted }) })
  const dependency = type === "flag" ? lists.flags.find((flag) => String(flag.id) === property.key || flag.key === property.key) : undefined
  return (
    <div class="filters property-filter" role="group" aria-label={`Filter ${number}`}>
      <label class="filter">
        <span>{number === 1 ? "where the" : "and the"}</span>
        <select value={type} onChange={(event) => become(event.currentTarget.value)}>
          {kinds.map(([kind, words]) => (
            <option key={kind} value={kind}>
              {words}
            </option>
          ))}
        </select>
      </label>
      {type !== "cohort" && (
        <>
          <input class="of" aria-label={type === "flag" ? "Flag" : "Property"} list={id} autocomplete="off" value={type === "flag" ? (names.get(property.key) ?? dependency?.key ?? property.key) : property.key} onInput={(event) => set({ key: event.currentTarget.value })} />
          <datalist id={id}>
            {(type === "flag" ? lists.flags.map(({ key }) => key) : type === "person" ? lists.properties : []).map((name) => (
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
          {[...lists.cohorts, ...(lists.cohorts.some(([cohort]) => cohort === shownValue(property.value)) ? [] : [[shownValue(property.value), `cohort ${shownValue(property.value)}`] as const])].map(([cohort, name]) => (
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
function Value({ property, set }: Pick<PropertyProps, "property" | "set">) {
  const hint = property.type === "flag" ? "true, false or a variant" : property.operator === "exact" || property.operator === "is_not" ? "several by commas" : undefined
  return <input key={property.operator} class="of" aria-label="Value" autocomplete="off" placeholder={hint} defaultValue={shownValue(property.value)} onInput={(event) => set({ value: typedValue(event.currentTarget.value, property) })} />
}
