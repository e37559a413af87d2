// One metric opened: its course over days, funnel steps, sample statistics, and what it counts.

import { useGet } from "../api/queryCache"
import { Dot, Name } from "../kit/basics"
import { Loaded } from "../kit/states"
import { Course, type CourseLine } from "../plots/course"
import { StepBar } from "../plots/bars"
import { clipped, counted, countText, general, intervalText, levelText, MISSING, numberText, percentText, visible } from "../lib/format"
import { dayText } from "../lib/time"
import { definitionTexts, metricDefinition, stepNames } from "./definition"
import { boundsOf, effectOf, funnelSteps, meanOf, type Metric, problemText, type Reading, type Results, sentence, styleOf, type VariantRow, varianceOf } from "./reading"

interface Props {
  experiment: object
  metric: Metric
  readings: Reading[]
  results: Results
  parts: { project_id: string; experiment_id: string }
}

export function Details({ experiment, metric, readings, results, parts }: Props) {
  const definition = metricDefinition(experiment, metric.uuid)
  const steps = metric.metric_type === "funnel" ? funnelSteps(readings, stepNames(definition)) : []
  const samples = (
    <>
      <h3>Samples</h3>
      <Samples metric={metric} readings={readings} />
    </>
  )
  return (
    <div class="detail-grid">
      <div>
        <h3>Day by day</h3>
        <Daily metric={metric} readings={readings} results={results} parts={parts} />
        {steps.length > 0 && samples}
        <Counted definition={definition} readings={readings} />
      </div>
      <div>
        {steps.length > 0 ? (
          <>
            <h3>Steps</h3>
            <Steps steps={steps} />
          </>
        ) : (
          samples
        )}
      </div>
      {metric.result?.breakdown_results && metric.result.breakdown_results.length > 0 && (
        <section class="all">
          <h3>Breakdown</h3>
          <Breakdown metric={metric} results={results} />
        </section>
      )}
    </div>
  )
}

function Counted({ definition, readings }: { definition: Record<string, unknown> | null; readings: Reading[] }) {
  const problems = readings.filter((each) => each.problem)
  return (
    <>
      <h3>What it counts</h3>
      <p>{visible(definitionTexts(definition).join(" "))}</p>
      {problems.map((each) => (
        <p key={each.key}>
          <Name text={each.key} />: {each.problem}
        </p>
      ))}
    </>
  )
}

function Daily({ metric, readings, results, parts }: Omit<Props, "experiment">) {
  const query = metric.uuid && metric.fingerprint ? { metric_uuid: metric.uuid, fingerprint: metric.fingerprint } : null
  const series = useGet("/api/projects/{project_id}/experiments/{experiment_id}/timeseries_results/", query && parts, query ?? {})
  const style = styleOf(metric, results.statistics)
  return (
    <Loaded answer={series} rows={5}>
      {(found) => {
        const days = Object.keys(found.timeseries).sort()
        const lines = readings.filter((each) => !each.isBaseline).map((each): CourseLine => ({
          key: each.key,
          place: each.place,
          points: days.map((day) => {
            const row = found.timeseries[day]?.variant_results.find((other: VariantRow) => other.key === each.key)
            const bounds = row ? boundsOf(row) : null
            const effect = row ? effectOf(row) : null
            return bounds && effect !== null ? { bounds, effect } : null
          }),
        }))
        const errors = Object.entries(found.errors ?? {})
        return (
          <>
            {lines.some((line) => line.points.filter(Boolean).length > 1) ? (
              <>
              <p class="quiet axis-title">
                {style.relative ? "Change, as a share of the baseline's value" : "Difference from the baseline's value"}, with {levelText(results.statistics.level)} intervals
              </p>
              <Course days={days} lines={lines} units={style} title={`${metric.name}: change day by day`} />
              </>
            ) : (
              <p class="quiet">The chart appears once two days have an interval; so far {counted(Math.max(0, ...lines.map((line) => line.points.filter(Boolean).length)), "day has", "days have")} one.</p>
            )}
            {errors.map(([day, text]) => (
              <p key={day} class="fault">
                {dayText(day)}: {clipped(text, 200)}
              </p>
            ))}
          </>
        )
      }}
    </Loaded>
  )
}

function Steps({ steps }: { steps: ReturnType<typeof funnelSteps> }) {
  return (
    <div class="scroll" tabindex={0} role="region" aria-label="Steps">
    <table class="steps">
      <thead>
        <tr>
          <th scope="col">Step</th>
          <th scope="col">Variant</th>
          <th scope="col" class="wide">
            <span class="unseen">Share of all as a bar</span>
          </th>
          <th scope="col" class="number">People</th>
          <th scope="col" class="number">Of all</th>
          <th scope="col" class="number">Of previous</th>
        </tr>
      </thead>
      {steps.map((step) => (
        <tbody key={step.step}>
          {step.variants.map((each, at) => (
            <tr key={each.key}>
              {at === 0 && (
                <th scope="rowgroup" rowspan={step.variants.length}>
                  <Name text={step.name} />
                </th>
              )}
              <th scope="row">
                <Dot place={each.place} /> <Name text={each.key} />
              </th>
              <td class="wide">
                <StepBar count={each.count} of={each.people} place={each.place} title={`${percentText(each.ofAll)} of all`} />
              </td>
              <td class="number">{countText(each.count)}</td>
              <td class="number">{percentText(each.ofAll)}</td>
              <td class="number">{each.ofBefore === null ? MISSING : percentText(each.ofBefore)}</td>
            </tr>
          ))}
        </tbody>
      ))}
    </table>
    </div>
  )
}

const exact = (value: number | null | undefined) => (value === null || value === undefined ? MISSING : Number.isInteger(value) ? numberText(value) : general(value, 6))

function Samples({ metric, readings }: { metric: Metric; readings: Reading[] }) {
  const has = (name: "denominator_sum" | "covariate_sum") => readings.some((each) => typeof each.row[name] === "number")
  const quantile = metric.metric_type === "quantile"
  return (
    <div class="scroll" tabindex={0} role="region" aria-label="Samples">
      <table class="samples">
        <thead>
          <tr>
            <th scope="col">Variant</th>
            <th scope="col" class="number">n</th>
            {quantile ? <th scope="col" class="number">Quantile</th> : <th scope="col" class="number">Sum</th>}
            <th scope="col" class="number">Mean</th>
            <th scope="col" class="number">Variance</th>
            {has("denominator_sum") && <th scope="col" class="number">Denominator</th>}
            {has("covariate_sum") && <th scope="col" class="number">Before (CUPED)</th>}
          </tr>
        </thead>
        <tbody>
          {readings.map(({ key, place, row }) => (
            <tr key={key}>
              <th scope="row">
                <Dot place={place} /> <Name text={key} />
              </th>
              <td class="number">{numberText(row.number_of_samples)}</td>
              <td class="number">{exact(quantile ? row.quantile : row.sum)}</td>
              <td class="number">{exact(meanOf(metric.metric_type, row))}</td>
              <td class="number">{exact(varianceOf(row))}</td>
              {has("denominator_sum") && <td class="number">{exact(row.denominator_sum)}</td>}
              {has("covariate_sum") && <td class="number">{exact(row.covariate_sum)}</td>}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}

function Breakdown({ metric, results }: { metric: Metric; results: Results }) {
  const style = styleOf(metric, results.statistics)
  return (
    <table class="samples">
      <thead>
        <tr>
          <th scope="col">Value</th>
          <th scope="col">Variant</th>
          <th scope="col" class="number">People</th>
          <th scope="col" class="number">Interval</th>
        </tr>
      </thead>
      <tbody>
        {(metric.result?.breakdown_results ?? []).flatMap((cell) =>
          cell.variants.map((row) => {
            const bounds = boundsOf(row)
            return (
              <tr key={`${cell.breakdown_value.join("\u0000")} ${row.key}`}>
                <th scope="row">
                  <Name text={cell.breakdown_value.join(", ")} />
                </th>
                <td>
                  <Name text={row.key} />
                </td>
                <td class="number">{numberText(row.number_of_samples)}</td>
                <td class={bounds ? "number" : "quiet"}>{bounds ? intervalText(bounds, style) : (sentence(row.problem) ?? problemText(row.validation_failures) ?? problemText(cell.baseline.validation_failures) ?? MISSING)}</td>
              </tr>
            )
          }),
        )}
      </tbody>
    </table>
  )
}
