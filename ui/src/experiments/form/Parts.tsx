// The parts of the form about the idea, the flag with its variants, and who takes part.

import { useState } from "preact/hooks"
import { useGet } from "../../api/queryCache"
import { lacks } from "../../api/session"
import { NO_PROPERTY } from "../../filters/property"
import { Button, Dot, Link } from "../../kit/basics"
import { Field } from "../../kit/forms"
import { useSettled } from "../../kit/hooks"
import { clipped, visible } from "../../lib/format"
import { list, object } from "../../lib/loose"
import { pathOf } from "../../lib/router"
import { ruleTexts } from "../../lib/rules"
import { equalised, sumOf, type VariantDraft } from "../../lib/split"
import { baselineOf, type Draft, keyOf } from "./draft"
import { Choice, EventName, Filters } from "./Source"
import type { Lists } from "./sources"
import { Small } from "./Metric"

export interface PartProps {
  draft: Draft
  change: (changed: Partial<Draft>) => void
  fault: (place: string) => string | null
  lists: Lists
  project: string
  /** Whether the experiment is launched, so that what people get stays. */
  isLaunched: boolean
}

export function Idea({ draft, change, fault }: PartProps) {
  const rename = (name: string) => change({ name, ...(!draft.ownKey && !draft.isLinked && { key: keyOf(name) }) })
  return (
    <section class="card" aria-labelledby="part-idea">
      <h2 id="part-idea">What and why</h2>
      <Field label="Name" error={fault("name")}>
        {(given) => <input {...given} value={draft.name} autocomplete="off" maxlength={400} placeholder="One-page checkout" onInput={(event) => rename(event.currentTarget.value)} />}
      </Field>
      <Field label="Hypothesis" error={fault("hypothesis")} hint="What changes, for whom, and what should become better by it. Everybody who reads the results sees it.">
        {(given) => <textarea {...given} class="prose" rows={3} maxlength={3000} value={draft.hypothesis} onInput={(event) => change({ hypothesis: event.currentTarget.value })} />}
      </Field>
    </section>
  )
}

const FLAGS = "/api/projects/{project_id}/experiments/eligible_feature_flags/"
const FLAG_LIMIT = 100

/** The flag of the experiment: a new one, or one that is there. */
export function FlagPart({ draft, change, fault, project, isLaunched, isNew }: PartProps & { isNew: boolean }) {
  const flags = useGet(FLAGS, isNew && lacks("feature_flag:read") === null ? { project_id: project } : null, { limit: FLAG_LIMIT, order: "-created_at" })
  const wanted = useSettled(draft.key.trim(), 300)
  const taken = useGet("/api/projects/{project_id}/feature_flags/", isNew && !draft.isLinked && wanted !== "" && lacks("feature_flag:read") === null ? { project_id: project } : null, { search: wanted, limit: 20 })
  const clash = isNew && !draft.isLinked && wanted === draft.key.trim() && taken.value?.results.some((flag) => flag.key === wanted)
  const link = (key: string) => {
    const flag = flags.value?.results.find((each) => each.key === key)
    const variants = list(object(flag?.filters.multivariate).variants)
    if (flag) change({ isLinked: true, key, baseline: "", variants: variants.map(({ key: name, rollout_percentage: share }) => ({ key: String(name), share: String(share ?? 0), rest: {} })) })
    else change({ isLinked: false, ownKey: false, key: keyOf(draft.name), variants: [{ key: "control", share: "50", rest: {} }, { key: "test", share: "50", rest: {} }] })
  }
  const linked = draft.isLinked ? flags.value?.results.find((flag) => flag.key === draft.key) : undefined
  return (
    <section class="card" aria-labelledby="part-flag">
      <h2 id="part-flag">Flag and variants</h2>
      {isNew && (flags.value?.results.length ?? 0) > 0 && (
        <Field label="Flag">
          {(given) => (
            <select {...given} value={draft.isLinked ? draft.key : ""} onChange={(event) => link(event.currentTarget.value)}>
              <option value="">a new one</option>
              {(flags.value?.results ?? []).map((flag) => (
                <option key={flag.key} value={flag.key}>
                  {clipped(flag.key, 80)}
                </option>
              ))}
            </select>
          )}
        </Field>
      )}
      {!draft.isLinked && (
        <Field
          label="Flag key"
          error={fault("key") ?? (clash ? "There is a flag of this key already. Choose it above, or change the key." : null)}
          hint={isNew ? "Code asks for the variant by this key. It follows the name until you change it." : "Code asks for the variant by this key, so it stays as it is."}
        >
          {(given) => <input {...given} value={draft.key} autocomplete="off" spellcheck={false} maxlength={400} disabled={!isNew} onInput={(event) => change({ key: event.currentTarget.value, ownKey: true })} />}
        </Field>
      )}
      {draft.isLinked && fault("key") && <p class="fault">{fault("key")}</p>}
      {linked ? (
        <p class="quiet">
          The flag stays as it is: {visible(ruleTexts(linked.filters).join("; ").slice(0, 400))}. Its variants and rules are changed <Link to={pathOf("p", project, "flags", linked.id)}>on its page</Link>.
        </p>
      ) : (
        <Variants draft={draft} change={change} fault={fault} isFixed={isLaunched} />
      )}
    </section>
  )
}

function Variants({ draft, change, fault, isFixed }: Pick<PartProps, "draft" | "change" | "fault"> & { isFixed: boolean }) {
  const { variants } = draft
  const set = (at: number, changed: Partial<VariantDraft>) => {
    const before = variants[at]?.key
    change({ variants: variants.map((variant, place) => (place === at ? { ...variant, ...changed } : variant)), ...(changed.key !== undefined && before === draft.baseline && { baseline: changed.key }) })
  }
  const sum = sumOf(variants)
  return (
    <>
      <table class="variants">
        <thead>
          <tr>
            <th scope="col">Variant</th>
            <th scope="col">Share in %</th>
            <th scope="col">Baseline</th>
            <th scope="col">
              <span class="unseen">Remove</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {variants.map((variant, at) => (
            <tr key={at}>
              <td>
                <span class="with-dot">
                  <Dot place={at} />
                  <input aria-label={`Key of variant ${at + 1}`} value={variant.key} autocomplete="off" spellcheck={false} disabled={isFixed} onInput={(event) => set(at, { key: event.currentTarget.value })} />
                </span>
              </td>
              <td>
                <Small label={`Share of variant ${at + 1} in percent`} value={variant.share} onInput={(share) => set(at, { share })} />
              </td>
              <td>
                <input type="radio" name="baseline" aria-label={`Compare with ${visible(variant.key.slice(0, 60))}`} checked={baselineOf(draft) === variant.key} onChange={() => change({ baseline: variant.key })} />
              </td>
              <td>
                {variants.length > 2 && !isFixed && (
                  <Button kind="quiet" label={`Remove variant ${at + 1}`} onClick={() => change({ variants: equalised(variants.filter((_, place) => place !== at)), ...(variant.key === draft.baseline && { baseline: "" }) })}>
                    Remove
                  </Button>
                )}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {fault("variants") ? <p class="fault">{fault("variants")}</p> : sum !== 100 && <p class="fault" role="status">The shares sum to {sum}%.</p>}
      {isFixed ? (
        <p class="hint">Variants stay as they are while people have them: for others, duplicate the experiment. A change of shares begins a new phase of the results.</p>
      ) : (
        <div class="row-buttons">
          <Button kind="quiet" onClick={() => change({ variants: equalised([...variants, { key: variants.some(({ key }) => key === "test") ? `test-${variants.length}` : "test", share: "0", rest: {} }]) })}>
            Add a variant
          </Button>
          <Button kind="quiet" onClick={() => change({ variants: equalised(variants) })}>
            Equal shares
          </Button>
        </div>
      )}
    </>
  )
}

interface WhoProps extends PartProps {
  /** The rules of a flag that the form cannot show as one set of conditions; empty: it can. */
  rules: readonly string[]
  flagId: number | null
}

export function Who({ draft, change, fault, lists, project, isLaunched, rules, flagId }: WhoProps) {
  const holdouts = useGet("/api/projects/{project_id}/experiment_holdouts/", lacks("experiment:read") === null ? { project_id: project } : null)
  const isPlain = rules.length === 0 && !draft.isLinked
  return (
    <section class="card" aria-labelledby="part-who">
      <h2 id="part-who">Who takes part</h2>
      {isPlain && (
        <>
          <div class="filters">
            <label class="filter">
              <Small label="Share of people who may take part, in percent" value={draft.rollout} onInput={(rollout) => change({ rollout })} />
              <span>% of {draft.conditions.length ? "people" : "everyone"}</span>
            </label>
            <input type="range" min="0" max="100" aria-label="Share of people as a slider" value={draft.rollout} onInput={(event) => change({ rollout: event.currentTarget.value })} />
            {!isLaunched && (
              <Button kind="quiet" onClick={() => change({ conditions: [...draft.conditions, NO_PROPERTY] })}>
                Add a condition
              </Button>
            )}
          </div>
          {isLaunched ? (
            <p class="hint">{flagId === null ? "" : "A larger share is safe. With a smaller one, people lose their variant. "}Conditions are part of who was counted: for others, duplicate the experiment.</p>
          ) : (
            <Filters properties={draft.conditions} lists={lists} kinds={["person", "group", "cohort"]} set={(conditions) => change({ conditions })} />
          )}
          {(fault("rollout") ?? fault("conditions")) && <p class="fault">{fault("rollout") ?? fault("conditions")}</p>}
        </>
      )}
      {rules.length > 0 && (
        <p class="quiet">
          The flag has rules of its own: {visible(rules.join("; ").slice(0, 400))}. {flagId !== null && <Link to={pathOf("p", project, "flags", flagId)}>Change them on its page</Link>}
        </p>
      )}
      <Field label="They count from the moment that they" error={fault("exposure")} hint={draft.exposure === "flag" ? "The usual choice: SDKs send this event when code asks for the flag." : "Choose an event of people with every variant alike, such as a page that all of them open. Each event has to name the variant."}>
        {(given) => (
          <select {...given} value={draft.exposure} onChange={(event) => change({ exposure: event.currentTarget.value })}>
            <option value="flag">reach code that asks for the flag</option>
            <option value="EventsNode">do an event</option>
            {(lists.actions.size > 0 || draft.exposure === "ActionsNode") && <option value="ActionsNode">do an action</option>}
          </select>
        )}
      </Field>
      {draft.exposure !== "flag" && (
        <div class="source" role="group" aria-label="Exposure">
          <div class="filters">
            {draft.exposure === "ActionsNode" ? (
              <Choice label="Exposure: action" value={draft.exposureAction} options={[...lists.actions]} empty="Choose …" onChange={(exposureAction) => change({ exposureAction })} />
            ) : (
              <EventName label="Exposure: event" value={draft.exposureEvent} lists={lists} onInput={(exposureEvent) => change({ exposureEvent })} />
            )}
            <Button kind="quiet" onClick={() => change({ exposureProperties: [...draft.exposureProperties, { ...NO_PROPERTY, type: "event" }] })}>
              Add a filter
            </Button>
          </div>
          <Filters properties={draft.exposureProperties} lists={lists} set={(exposureProperties) => change({ exposureProperties })} />
        </div>
      )}
      <Further draft={draft} change={change} isPlain={isPlain} isLaunched={isLaunched} holdouts={holdouts.value?.results ?? []} />
    </section>
  )
}

interface FurtherProps extends Pick<PartProps, "draft" | "change" | "isLaunched"> {
  isPlain: boolean
  holdouts: readonly { id: number; name: string }[]
}

function Further({ draft, change, isPlain, isLaunched, holdouts }: FurtherProps) {
  const [open] = useState(!draft.filtersTestAccounts || draft.several !== "exclude" || draft.holdout !== "" || draft.persists)
  return (
    <details open={open}>
      <summary>Test accounts, several variants{holdouts.length > 0 ? ", holdout" : ""}</summary>
      <label class="check">
        <input type="checkbox" checked={draft.filtersTestAccounts} onChange={(event) => change({ filtersTestAccounts: event.currentTarget.checked })} /> Leave internal and test accounts out of the results
      </label>
      {isPlain && (
        <label class="check">
          <input type="checkbox" checked={draft.persists} onChange={(event) => change({ persists: event.currentTarget.checked })} /> People keep their variant when they log in
        </label>
      )}
      <label class="check">
        <input type="checkbox" checked={draft.several === "first_seen"} onChange={(event) => change({ several: event.currentTarget.checked ? "first_seen" : "exclude" })} /> Count people who saw several variants for the first one, in place of leaving them out
      </label>
      {(holdouts.length > 0 || draft.holdout !== "") && (
        <label class="filter">
          <span>Holdout</span>
          <select value={draft.holdout} disabled={isLaunched} onChange={(event) => change({ holdout: event.currentTarget.value })}>
            <option value="">none</option>
            {holdouts.map(({ id, name }) => (
              <option key={id} value={String(id)}>
                {clipped(name, 60)}
              </option>
            ))}
          </select>
        </label>
      )}
    </details>
  )
}
