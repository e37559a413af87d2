// The metrics: one row for each variant, one axis for all, details when a metric is opened.

import type { Schemas } from "../api/client"
import { Dot, Name } from "../kit/basics"
import { usePlace, useWidth } from "../kit/hooks"
import { ask } from "../lib/router"
import { clipped, intervalText, levelText, MISSING, percentText, visible } from "../lib/format"
import { type ForestAxis, forestAxis } from "../plots/axis"
import { ForestTicks, Interval } from "../plots/forest"
import { Details } from "./Details"
import { allBounds, type Metric, type Reading, readingsOf, type Results, styleOf, WITHHELD } from "./reading"

interface Props {
  experiment: object
  results: Results
  places: ReadonlyMap<string, number>
  parts: { project_id: string; experiment_id: string }
}

const NARROW = 640
const FOREST_SHARE = 0.27
const FOREST_PADDING = 26
const ARROWS = { better: "▲", worse: "▼", unclear: "" } as const
const ARROW_WORDS = { better: "better", worse: "worse", unclear: "" } as const

export function MetricTables(props: Props) {
  const [element, width] = useWidth<HTMLDivElement>()
  // On narrow pages, where screens.css puts rows below each other, intervals have the whole width.
  const room = width > NARROW ? width * FOREST_SHARE : width
  const axis = forestAxis(allBounds(props.results), Math.max(140, Math.floor(room) - FOREST_PADDING))
  const sections = [[true, "Primary metrics"], [false, "Secondary metrics"]] as const
  return (
    <div ref={element} class="metric-tables">
      {width > 0 &&
        sections.map(([primary, title]) => {
          const metrics = props.results.metrics.filter((metric) => metric.is_primary === primary)
          if (metrics.length === 0 && !primary) return null
          return (
            <section class="part" key={title} aria-label={title}>
              <h2>{title}</h2>
              {metrics.length === 0 ? <p class="card">No primary metric: nothing decides this experiment. Add one in its set-up.</p> : <MetricTable {...props} metrics={metrics} axis={axis} title={title} />}
            </section>
          )
        })}
    </div>
  )
}

interface TableProps extends Props {
  metrics: Metric[]
  axis: ForestAxis
  title: string
}

function MetricTable({ metrics, axis, title, ...props }: TableProps) {
  const { query } = usePlace()
  const open = new Set((query.get("open") ?? "").split(",").filter(Boolean))
  const { statistics } = props.results
  const first = metrics[0]
  const style = first ? styleOf(first, statistics) : { relative: true, isShare: false }
  const toggle = (uuid: string) => {
    const next = new Set(open)
    if (!next.delete(uuid)) next.add(uuid)
    ask({ open: [...next].join(",") })
  }
  return (
    <div class="card table-card" tabindex={0} role="region" aria-label={`${title}, table`}>
      <table class="metrics">
        <colgroup>
          {["metric", "variant", "people", "value", "change", "certainty", "forest"].map((name) => (
            <col key={name} class={`col-${name}`} />
          ))}
        </colgroup>
        <thead>
          <tr>
            <th scope="col">Metric</th>
            <th scope="col">Variant</th>
            <th scope="col" class="number">
              People
            </th>
            <th scope="col" class="number">
              Value
            </th>
            <th scope="col" class="number">
              Change
            </th>
            <th scope="col" class="number">
              {statistics.method === "bayesian" ? "Chance to win" : "p-value"}
            </th>
            <th scope="col" class="forest-cell">
              <span class="axis-title">{levelText(statistics.level)} interval of the change</span>
              <ForestTicks axis={axis} units={style} />
            </th>
          </tr>
        </thead>
        {metrics.map((metric) => (
          <MetricBody key={metric.uuid ?? metric.name} metric={metric} axis={axis} open={open.has(metric.uuid ?? "")} toggle={() => metric.uuid && toggle(metric.uuid)} {...props} />
        ))}
      </table>
    </div>
  )
}

interface BodyProps extends Props {
  metric: Metric
  axis: ForestAxis
  open: boolean
  toggle: () => void
}

function MetricBody({ metric, axis, open, toggle, results, places, experiment, parts }: BodyProps) {
  const readings = readingsOf(results, metric, places)
  const id = `metric-${metric.uuid}`
  const title = (
    <th scope="rowgroup" rowspan={Math.max(1, readings.length)} class="metric-name">
      <button type="button" aria-expanded={open} aria-controls={id} onClick={toggle} disabled={metric.uuid === null}>
        <span aria-hidden="true">{open ? "▾" : "▸"}</span> <Name text={metric.name} />
      </button>
      <span class="quiet">
        {metric.value_label}
        {metric.margin !== null && (metric.margin ? `, guardrail, margin ${percentText(metric.margin)}` : ", guardrail")}
        {metric.goal === "decrease" ? ", less is better: ← better, worse →" : ": ← worse, better →"}
      </span>
    </th>
  )
  return (
    <tbody id={metric.uuid ?? undefined}>
      {readings.length === 0 ? (
        <tr>
          {title}
          <td colspan={6} class="why">
            {whyEmpty(metric)}
          </td>
        </tr>
      ) : (
        readings.map((reading, at) => (
          <tr key={reading.key} data-variant={reading.key} data-baseline={reading.isBaseline || undefined} class={reading.tone}>
            {at === 0 && title}
            <Row reading={reading} metric={metric} axis={axis} results={results} />
          </tr>
        ))
      )}
      {metric.error && readings.length > 0 && (
        <tr>
          <td colspan={7} class="fault">
            The newest result failed: {clipped(metric.error, 300)}
          </td>
        </tr>
      )}
      {open && metric.uuid && (
        <tr class="details">
          <td colspan={7} id={id}>
            <Details experiment={experiment} metric={metric} readings={readings} results={results} parts={parts} />
          </td>
        </tr>
      )}
    </tbody>
  )
}

function whyEmpty(metric: Metric): string {
  if (metric.error) return `It could not be computed: ${clipped(metric.error, 300)}`
  const words: Record<Schemas["MetricOut"]["status"], string> = {
    pending: "It is being computed.",
    failed: "It could not be computed.",
    unsupported: "It belongs to the former engine, whose results are not shown here.",
    not_started: "The experiment has not begun.",
    completed: "There is no result.",
  }
  return words[metric.status]
}

function Row({ reading, metric, axis, results }: { reading: Reading; metric: Metric; axis: ForestAxis; results: Results }) {
  const style = styleOf(metric, results.statistics)
  const clear = reading.tone !== "unclear"
  const level = `${levelText(results.statistics.level)} interval`
  const bayesian = results.statistics.method === "bayesian"
  return (
    <>
      <th scope="row" class="variant">
        <Dot place={reading.place} /> <Name text={reading.key} />
      </th>
      <td class="number people" data-unit="people">
        {reading.people}
      </td>
      <td class="number value">{reading.value}</td>
      {reading.isBaseline ? (
        <>
          <td class="number change quiet">baseline</td>
          <td />
        </>
      ) : reading.bounds === null ? (
        <td colspan={2} class="why">
          {reading.problem ? visible(reading.problem) : MISSING}
        </td>
      ) : (
        <>
          <td class="number change" title={intervalText(reading.bounds, style)}>
            {clear && (
              <>
                <span aria-hidden="true">{ARROWS[reading.tone]} </span>
                <span class="unseen">{ARROW_WORDS[reading.tone]}: </span>
              </>
            )}
            {reading.change}
          </td>
          <td class={`number certainty ${reading.certainty === WITHHELD ? "quiet" : ""}`} data-unit={bayesian && reading.certainty !== WITHHELD ? "to win" : undefined}>
            {reading.certainty}
          </td>
        </>
      )}
      <td class="forest-cell">
        <Interval axis={axis} bounds={reading.bounds} effect={reading.effect} tone={reading.tone} units={style} label={level} />
      </td>
    </>
  )
}
