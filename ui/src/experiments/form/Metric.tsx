// One metric of the draft: folded as a sentence, opened as a form.

import { Badge, Button, Name } from "../../kit/basics"
import { Field } from "../../kit/forms"
import { visible } from "../../lib/format"
import { definitionTexts } from "../definition"
import { type MetricDraft, nameOf, NO_SOURCE, retyped, ROLES, type Role, TYPES, type Type, UNITS, wireOfMetric } from "./metric"
import { Source } from "./Source"
import type { Lists } from "./sources"
import { metricName } from "./words"

interface Props {
  metric: MetricDraft
  isOpen: boolean
  fault: string | null
  lists: Lists
  project: string
  set: (changed: Partial<MetricDraft>) => void
  toggle: () => void
  remove: () => void
}

const LABELS: Record<Type, (at: number) => string> = {
  mean: () => "Counts",
  quantile: () => "Counts",
  funnel: (at) => `Step ${at + 1}`,
  ratio: (at) => (at === 0 ? "Total of" : "Divided by"),
  retention: (at) => (at === 0 ? "Starts with" : "Comes back with"),
}

export function Metric({ metric, isOpen, fault, lists, project, set, toggle, remove }: Props) {
  const name = metricName(metric)
  const texts = fault === null || !isOpen ? definitionTexts(wireOfMetric(metric)) : []
  return (
    <div class="metric-draft" role="group" aria-label={`Metric ${visible(name.slice(0, 80))}`}>
      <div class="metric-head">
        <div class="grow">
          <h3>
            <Name text={name} /> <Badge>{metric.role}</Badge>
          </h3>
          {texts.length > 0 && !isOpen && <p class="quiet">{visible(texts.join(" "))}</p>}
        </div>
        <div class="row-buttons">
          <Button kind="quiet" label={`${isOpen ? "Done with" : "Change"} ${visible(name.slice(0, 60))}`} onClick={toggle}>
            {isOpen ? "Done" : "Change"}
          </Button>
          <Button kind="quiet" label={`Remove ${visible(name.slice(0, 60))}`} onClick={remove}>
            Remove
          </Button>
        </div>
      </div>
      {isOpen && <Fields metric={metric} lists={lists} project={project} set={set} />}
      {fault && (
        <p class="fault" role="alert">
          {visible(fault)}
        </p>
      )}
    </div>
  )
}

function Fields({ metric, lists, project, set }: Pick<Props, "metric" | "lists" | "project" | "set">) {
  const { type, sources } = metric
  const counts = type !== "funnel" && type !== "retention"
  const setSource = (at: number) => (changed: object) => set({ sources: sources.map((source, place) => (place === at ? { ...source, ...changed } : source)) })
  return (
    <>
      <div class="fields">
        <Field label="Kind" hint={TYPES.find(([key]) => key === type)?.[2]}>
          {(given) => (
            <select {...given} value={type} onChange={(event) => set({ type: event.currentTarget.value as Type, sources: retyped(event.currentTarget.value as Type, sources) })}>
              {TYPES.map(([key, words]) => (
                <option key={key} value={key}>
                  {words}
                </option>
              ))}
            </select>
          )}
        </Field>
        <Field label="Role">
          {(given) => (
            <select {...given} value={metric.role} onChange={(event) => set({ role: event.currentTarget.value as Role })}>
              {ROLES.map(([key, words]) => (
                <option key={key} value={key}>
                  {words}
                </option>
              ))}
            </select>
          )}
        </Field>
        <Field label="Better is">
          {(given) => (
            <select {...given} value={metric.goal} onChange={(event) => set({ goal: event.currentTarget.value })}>
              <option value="increase">more</option>
              <option value="decrease">less</option>
            </select>
          )}
        </Field>
      </div>
      {sources.map((source, at) => (
        <Source
          key={at}
          label={LABELS[type](at)}
          source={source}
          counts={counts}
          lists={lists}
          project={project}
          set={setSource(at)}
          remove={type === "funnel" && sources.length > 1 ? () => set({ sources: sources.filter((_, place) => place !== at) }) : undefined}
        />
      ))}
      {type === "funnel" && (
        <div class="row-buttons">
          <Button kind="quiet" onClick={() => set({ sources: [...sources, NO_SOURCE] })}>
            Add a step
          </Button>
        </div>
      )}
      {type === "retention" && (
        <div class="filters">
          <span>Counts when they come back</span>
          <Small label="From" value={metric.from} onInput={(from) => set({ from })} />
          <span>to</span>
          <Small label="To" value={metric.to} onInput={(to) => set({ to })} />
          <Unit label="Unit" value={metric.unit} onChange={(unit) => set({ unit })} />
          <span>after the</span>
          <select aria-label="Which start counts" value={metric.startHandling} onChange={(event) => set({ startHandling: event.currentTarget.value })}>
            <option value="first_seen">first start</option>
            <option value="last_seen">last start</option>
          </select>
        </div>
      )}
      {type === "quantile" && (
        <div class="filters">
          <label class="filter">
            <span>Percentile</span>
            <Small label="Percentile" value={metric.level} onInput={(level) => set({ level })} />
          </label>
          <select aria-label="Of what" value={metric.ofEvents ? "event" : ""} onChange={(event) => set({ ofEvents: event.currentTarget.value === "event" })}>
            <option value="">of the people's values</option>
            <option value="event">of all events' values</option>
          </select>
        </div>
      )}
      <div class="fields">
        <Field label="Name" hint="Shown in results. Empty: as proposed.">
          {(given) => <input {...given} value={metric.name} placeholder={nameOf(metric)} autocomplete="off" maxlength={400} onInput={(event) => set({ name: event.currentTarget.value })} />}
        </Field>
        {metric.role === "guardrail" && (
          <Field label="Loss that is allowed, in percent" hint="A variant ships once a larger loss is ruled out. 0: unless it is clearly worse.">
            {(given) => <input {...given} inputmode="decimal" placeholder="0" value={metric.margin} onInput={(event) => set({ margin: event.currentTarget.value })} />}
          </Field>
        )}
      </div>
      <Further metric={metric} set={set} />
    </>
  )
}

function Further({ metric, set }: Pick<Props, "metric" | "set">) {
  const { type } = metric
  return (
    <details>
      <summary>Window{type === "funnel" ? " and order" : type === "mean" ? ", outliers and threshold" : type === "ratio" ? " and outliers" : type === "quantile" ? " and zeros" : ""}</summary>
      <div class="filters">
        <span>Events count within</span>
        <Small label="Window" placeholder="any" value={metric.window} onInput={(window) => set({ window })} />
        <Unit label="Unit of the window" value={metric.windowUnit} onChange={(windowUnit) => set({ windowUnit })} />
        <span>of the exposure</span>
      </div>
      {type === "funnel" && (
        <label class="filter">
          <span>Steps follow</span>
          <select value={metric.order} onChange={(event) => set({ order: event.currentTarget.value })}>
            <option value="ordered">one after the other</option>
            <option value="strict">one directly after the other</option>
            <option value="unordered">in any order</option>
          </select>
        </label>
      )}
      {(type === "mean" || type === "ratio") && (
        <div class="filters">
          <span>{type === "ratio" ? "Totals are" : "Values are"} cut at the percentiles</span>
          <Small label="Lower percentile" placeholder="none" value={metric.low} onInput={(low) => set({ low })} />
          <span>and</span>
          <Small label="Upper percentile" placeholder="none" value={metric.high} onInput={(high) => set({ high })} />
          {type === "ratio" && (
            <>
              <span>, divisors at</span>
              <Small label="Upper percentile of the divisor" placeholder="none" value={metric.highOfDenominator} onInput={(highOfDenominator) => set({ highOfDenominator })} />
            </>
          )}
        </div>
      )}
      {type === "mean" && (
        <div class="filters">
          <span>Count people who reach</span>
          <Small label="Threshold" placeholder="none" value={metric.threshold} onInput={(threshold) => set({ threshold })} />
          <span>, in place of the mean</span>
        </div>
      )}
      {type !== "funnel" && type !== "retention" && (
        <label class="check">
          <input type="checkbox" checked={metric.ignoreZeros} onChange={(event) => set({ ignoreZeros: event.currentTarget.checked })} /> {type === "quantile" ? "Leave zeros out" : "Take the upper percentile of values that are not zero"}
        </label>
      )}
    </details>
  )
}

interface SmallProps {
  label: string
  value: string
  placeholder?: string
  onInput: (value: string) => void
}

export function Small({ label, value, placeholder, onInput }: SmallProps) {
  return <input class="share" inputmode="decimal" aria-label={label} placeholder={placeholder} value={value} onInput={(event) => onInput(event.currentTarget.value)} />
}

function Unit({ label, value, onChange }: { label: string; value: string; onChange: (unit: string) => void }) {
  return (
    <select aria-label={label} value={value} onChange={(event) => onChange(event.currentTarget.value)}>
      {[...UNITS, ...(UNITS.some((unit) => unit === value) ? [] : [value])].map((unit) => (
        <option key={unit} value={unit}>
          {unit}s
        </option>
      ))}
    </select>
  )
}
