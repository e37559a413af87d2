// The bar of filters above lists of events.

import { useEffect, useState } from "preact/hooks"
import { Button } from "../kit/basics"
import { Search, Select } from "../kit/forms"
import { usePlace, useSettled } from "../kit/hooks"
import { ask, place } from "../lib/router"
import { chosenOf, needsValue, NO_FILTER, OPERATORS, type PropertyFilter, RANGES, whereText } from "./filters"

const OF = [["event", "event's"], ["person", "person's"]] as const

export function FilterBar({ ranges }: { ranges: boolean }) {
  const { query } = usePlace()
  const { event, distinctId, range, where } = chosenOf(query)
  // Fields that settle at the same moment change what the address holds by then, one after the other.
  const change = (next: (now: readonly PropertyFilter[]) => readonly PropertyFilter[]) => ask({ where: whereText(next(chosenOf(place().query).where)) })
  return (
    <div role="search" class="filter-bar">
      <div class="filters">
        <Text label="Event" value={event} onSettled={(text) => ask({ event: text })} />
        <Text label="Distinct id" value={distinctId} onSettled={(text) => ask({ distinct_id: text })} />
        {ranges && <Select label="Time" value={range} options={RANGES} onChange={(wanted) => ask({ range: wanted })} />}
        <Button kind="quiet" onClick={() => change((now) => [...now, NO_FILTER])}>
          Add a property filter
        </Button>
      </div>
      {where.map((filter, at) => (
        <Property
          key={at}
          number={at + 1}
          filter={filter}
          onChange={(changes) => change((now) => now.map((each, index) => (index === at ? { ...each, ...changes } : each)))}
          onRemove={() => change((now) => now.filter((_, index) => index !== at))}
        />
      ))}
    </div>
  )
}

interface PropertyProps {
  number: number
  filter: PropertyFilter
  onChange: (changes: Partial<PropertyFilter>) => void
  onRemove: () => void
}

function Property({ number, filter, onChange, onRemove }: PropertyProps) {
  return (
    <div class="filters property-filter" role="group" aria-label={`Property filter ${number}`}>
      <Select label={number === 1 ? "where the" : "and the"} value={filter.type} options={OF} onChange={(type) => onChange({ type })} />
      <Text label="property" value={filter.key} onSettled={(key) => onChange({ key })} />
      <Select label="" name="Operator" value={filter.operator} options={OPERATORS} onChange={(operator) => onChange({ operator })} />
      {needsValue(filter.operator) && <Text label="" name="Value" value={filter.value} onSettled={(value) => onChange({ value })} />}
      <Button kind="quiet" label={`Remove property filter ${number}`} onClick={onRemove}>
        Remove
      </Button>
    </div>
  )
}

interface TextProps {
  label: string
  name?: string
  value: string
  onSettled: (text: string) => void
}

/** A field whose text is used once nothing was typed for a moment; the address may change it as well. */
function Text({ label, name, value, onSettled }: TextProps) {
  const [text, setText] = useState(value)
  const settled = useSettled(text, 300)
  useEffect(() => {
    if (settled !== value) onSettled(settled)
  }, [settled])
  useEffect(() => {
    if (value !== settled) setText(value)
  }, [value])
  return <Search label={label} name={name} value={text} onInput={setText} />
}
