// The metrics of the draft: own ones, and shared ones that every experiment can use.

import { useState } from "preact/hooks"
import { useGet } from "../../api/queryCache"
import { lacks } from "../../api/session"
import { Badge, Button, Name } from "../../kit/basics"
import { clipped } from "../../lib/format"
import { object } from "../../lib/loose"
import { visible } from "../../lib/format"
import { definitionTexts } from "../definition"
import { Metric } from "./Metric"
import { type MetricDraft, newMetric, problemOfMetric } from "./metric"
import type { PartProps } from "./Parts"

const SHARED = "/api/projects/{project_id}/experiment_saved_metrics/"
const MOST = 200

export function Metrics({ draft, change, fault, lists, project }: PartProps) {
  // A metric that has just been added is open until somebody folds it.
  const [open, setOpen] = useState<ReadonlySet<string>>(() => new Set(draft.metrics.filter((metric) => metric.uuid === null && problemOfMetric(metric) !== null).map(({ id }) => id)))
  const shared = useGet(SHARED, lacks("experiment_saved_metric:read") === null ? { project_id: project } : null, { limit: MOST })
  const free = (shared.value?.results ?? []).filter(({ id }) => !draft.shared.some((each) => each.id === id))
  const has = (role: string) => draft.metrics.some((metric) => metric.role === role) || draft.shared.some((metric) => metric.role === role)
  const set = (id: string) => (changed: Partial<MetricDraft>) => change({ metrics: draft.metrics.map((metric) => (metric.id === id ? { ...metric, ...changed } : metric)) })
  const toggle = (id: string, isOpen: boolean) => setOpen((now) => new Set(isOpen ? [...now, id] : [...now].filter((other) => other !== id)))
  const add = () => {
    const metric = newMetric("funnel", has("primary") ? "secondary" : "primary")
    change({ metrics: [...draft.metrics, metric] })
    toggle(metric.id, true)
  }
  return (
    <section class="card" aria-labelledby="part-metrics">
      <h2 id="part-metrics">Metrics</h2>
      <p class="quiet">A primary metric decides. A guardrail holds back a variant that harms it. Secondary ones are only shown.</p>
      {fault("metrics") && (
        <p class="fault" role="alert">
          {fault("metrics")}
        </p>
      )}
      {draft.metrics.map((metric) => (
        <Metric
          key={metric.id}
          metric={metric}
          isOpen={open.has(metric.id) || fault(`metric ${metric.id}`) !== null}
          fault={fault(`metric ${metric.id}`)}
          lists={lists}
          project={project}
          set={set(metric.id)}
          toggle={() => toggle(metric.id, !open.has(metric.id))}
          remove={() => change({ metrics: draft.metrics.filter(({ id }) => id !== metric.id) })}
        />
      ))}
      {draft.shared.map((metric) => {
        const texts = definitionTexts(object(shared.value?.results.find(({ id }) => id === metric.id)?.query))
        const setRole = (role: "primary" | "secondary") => change({ shared: draft.shared.map((each) => (each.id === metric.id ? { ...each, role } : each)) })
        return (
          <div key={metric.id} class="metric-draft" role="group" aria-label={`Shared metric ${visible(metric.name.slice(0, 80))}`}>
            <div class="metric-head">
              <div class="grow">
                <h3>
                  <Name text={metric.name} /> <Badge>shared</Badge>
                </h3>
                {texts.length > 0 && <p class="quiet">{visible(texts.join(" "))}</p>}
              </div>
              <select aria-label={`Role of ${visible(metric.name.slice(0, 60))}`} value={metric.role} onChange={(event) => setRole(event.currentTarget.value === "primary" ? "primary" : "secondary")}>
                <option value="primary">primary</option>
                <option value="secondary">secondary</option>
              </select>
              <Button kind="quiet" label={`Remove ${visible(metric.name.slice(0, 60))}`} onClick={() => change({ shared: draft.shared.filter(({ id }) => id !== metric.id) })}>
                Remove
              </Button>
            </div>
          </div>
        )
      })}
      <div class="filters add-metric">
        <Button onClick={add}>{has("primary") ? "Add a metric" : "Add a primary metric"}</Button>
        {free.length > 0 && (
          <select
            aria-label="Add a shared metric"
            value=""
            onChange={(event) => {
              const found = free.find(({ id }) => String(id) === event.currentTarget.value)
              if (found) change({ shared: [...draft.shared, { id: found.id, name: found.name, role: has("primary") ? "secondary" : "primary" }] })
            }}
          >
            <option value="">Add a shared metric …</option>
            {free.map(({ id, name }) => (
              <option key={id} value={String(id)}>
                {clipped(name, 60)}
              </option>
            ))}
          </select>
        )}
      </div>
    </section>
  )
}
