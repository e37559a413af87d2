// The conditions of a flag as rows that can be changed, each with its sentence above.

import { PropertyRow, useProposals } from "../filters/PropertyRow"
import { NO_PROPERTY } from "../filters/property"
import { Button } from "../kit/basics"
import { clipped } from "../lib/format"
import { type ConditionDraft, type Draft, NO_CONDITION, sentenceOf } from "./draft"

const KINDS = ["person", "group", "cohort", "flag"] as const

interface Props {
  draft: Draft
  change: (changes: Partial<Draft>) => void
  names: ReadonlyMap<string, string>
  fault: (place: string) => string | null
  project: string
}

export function Conditions({ draft, change, names, fault, project }: Props) {
  const proposals = useProposals(project)
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
            <PropertyRow
              key={place}
              number={place + 1}
              property={property}
              proposals={proposals}
              kinds={KINDS}
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
