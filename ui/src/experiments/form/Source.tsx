// The events that a metric counts, or by which people are met: a name or an action, how they become a value, and filters.

import { useId } from "preact/hooks"
import { PropertyRow } from "../../filters/PropertyRow"
import { NO_PROPERTY, type PropertyDraft } from "../../filters/property"
import { Button } from "../../kit/basics"
import { clipped } from "../../lib/format"
import { MATHS, needsOf, sourceName, type SourceDraft } from "./metric"
import { type Lists, useCounted, useEventProperties } from "./sources"

const KINDS = ["event", "person", "group", "cohort"] as const

interface Props {
  label: string
  source: SourceDraft
  /** Whether the events become a value of each person. */
  counts: boolean
  lists: Lists
  project: string
  set: (changed: Partial<SourceDraft>) => void
  remove?: (() => void) | undefined
}

export function Source({ label, source, counts, lists, project, set, remove }: Props) {
  const id = useId()
  const found = useCounted(project, source, lists)
  const needed = needsOf(source.math)
  const properties = useEventProperties(project, source.kind === "EventsNode" && (source.properties.length > 0 || needed === "property") ? source.event : "")
  const isKept = source.kind !== "EventsNode" && source.kind !== "ActionsNode"
  return (
    <div class="source" role="group" aria-label={label}>
      <div class="filters">
        <span class="source-label">{label}</span>
        {isKept ? (
          <span>{clipped(sourceName(source), 80)}</span>
        ) : (
          <>
            {lists.actions.size > 0 && (
              <select aria-label={`${label}: kind`} value={source.kind} onChange={(event) => set({ kind: event.currentTarget.value })}>
                <option value="EventsNode">event</option>
                <option value="ActionsNode">action</option>
              </select>
            )}
            {source.kind === "ActionsNode" ? (
              <Choice label={`${label}: action`} value={source.action} options={[...lists.actions]} empty="Choose …" onChange={(action) => set({ action })} />
            ) : (
              <EventName label={`${label}: event`} value={source.event} lists={lists} onInput={(event) => set({ event })} />
            )}
          </>
        )}
        {counts && (
          <select aria-label={`${label}: what counts`} value={source.math} onChange={(event) => set({ math: event.currentTarget.value, of: "" })}>
            {MATHS.filter(([math, , of]) => of !== "group" || lists.groups.length > 0 || math === source.math).map(([math, words]) => (
              <option key={math} value={math}>
                {words}
              </option>
            ))}
          </select>
        )}
        {counts && needed === "group" && <Choice label={`${label}: group type`} value={source.of} options={lists.groups} empty="Choose …" onChange={(of) => set({ of })} />}
        {counts && (needed === "property" || needed === "expression") && (
          <>
            <input class={needed === "expression" ? "of long" : "of"} aria-label={`${label}: ${needed}`} placeholder={needed === "expression" ? "sum(toFloat(properties.amount))" : "property"} list={`${id}-of`} autocomplete="off" spellcheck={false} value={source.of} onInput={(event) => set({ of: event.currentTarget.value })} />
            {needed === "property" && <Names id={`${id}-of`} names={properties} />}
          </>
        )}
        <Button kind="quiet" label={`Add a filter to ${label.toLowerCase()}`} onClick={() => set({ properties: [...source.properties, { ...NO_PROPERTY, type: "event" }] })}>
          Add a filter
        </Button>
        {remove && (
          <Button kind="quiet" label={`Remove ${label.toLowerCase()}`} onClick={remove}>
            Remove
          </Button>
        )}
      </div>
      <Filters properties={source.properties} lists={lists} eventProperties={properties} set={(changed) => set({ properties: changed })} />
      <p class={found?.isMissing ? "seen fault" : "seen quiet"} role="status">
        {found?.text ?? ""}
      </p>
    </div>
  )
}

interface FiltersProps {
  properties: readonly PropertyDraft[]
  lists: Lists
  eventProperties?: readonly string[]
  kinds?: readonly (typeof KINDS)[number][]
  set: (changed: PropertyDraft[]) => void
}

export function Filters({ properties, lists, eventProperties = [], kinds = KINDS, set }: FiltersProps) {
  return (
    <>
      {properties.map((property, at) => (
        <PropertyRow
          key={at}
          number={at + 1}
          property={property}
          proposals={{ ...lists.proposals, eventProperties }}
          kinds={kinds}
          names={NO_NAMES}
          set={(changed) => set(properties.map((other, place) => (place === at ? { ...other, ...changed } : other)))}
          remove={() => set(properties.filter((_, place) => place !== at))}
        />
      ))}
    </>
  )
}

const NO_NAMES: ReadonlyMap<string, string> = new Map()

interface EventNameProps {
  label: string
  value: string
  lists: Lists
  onInput: (name: string) => void
  id?: string
  "aria-describedby"?: string | undefined
  "aria-invalid"?: boolean | undefined
}

/** A field for the name of an event; those that came are proposed. */
export function EventName({ label, value, lists, onInput, ...given }: EventNameProps) {
  const id = useId()
  return (
    <>
      <input class="of" aria-label={given.id === undefined ? label : undefined} {...given} list={`${id}-events`} autocomplete="off" spellcheck={false} placeholder="name of the event" value={value} onInput={(event) => onInput(event.currentTarget.value)} />
      <Names id={`${id}-events`} names={[...(lists.seen?.keys() ?? [])]} />
    </>
  )
}

function Names({ id, names }: { id: string; names: readonly string[] }) {
  return (
    <datalist id={id}>
      {names.map((name) => (
        <option key={name} value={name} />
      ))}
    </datalist>
  )
}

interface ChoiceProps {
  label: string
  value: string
  options: readonly (readonly [string, string])[]
  empty: string
  onChange: (value: string) => void
}

export function Choice({ label, value, options, empty, onChange }: ChoiceProps) {
  return (
    <select aria-label={label} value={value} onChange={(event) => onChange(event.currentTarget.value)}>
      <option value="">{empty}</option>
      {options.map(([key, name]) => (
        <option key={key} value={key}>
          {clipped(name, 60)}
        </option>
      ))}
    </select>
  )
}
