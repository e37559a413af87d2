// Who is in the experiment: people per day, the share of each variant, and whether those are the shares that were asked for.

import { useState } from "preact/hooks"
import { Button, Dot, Name } from "../kit/basics"
import { perDay, ShareBar, type Stack, StackedDays } from "../plots/bars"
import { counted, countText, percentText, pText, visible } from "../lib/format"
import { daysBetween } from "../lib/time"
import type { Results } from "./reading"

const SEVERAL = "$multiple"

interface Props {
  results: Results
  places: ReadonlyMap<string, number>
  zone: string
  started: string | null
  hasEnded: boolean
}

export function Exposures({ results, places, zone, started, hasEnded }: Props) {
  const [cumulative, setCumulative] = useState(false)
  const exposures = results.exposures
  if (!exposures)
    return (
      <section class="card">
        <h2>People in the experiment</h2>
        <p>{results.exposures_error ? visible(results.exposures_error) : "People are being counted."}</p>
      </section>
    )
  const totals = Object.entries(exposures.total_exposures).filter(([key]) => key !== SEVERAL)
  const ordered = totals.sort(([a], [b]) => (places.get(a) ?? 99) - (places.get(b) ?? 99))
  const all = ordered.reduce((sum, [, count]) => sum + count, 0)
  const several = exposures.total_exposures[SEVERAL] ?? 0
  const expected = exposures.sample_ratio_mismatch?.expected ?? {}
  const largest = Math.max(0, ...ordered.map(([key, count]) => Math.max(count, expected[key] ?? 0)))
  const days = exposures.timeseries[0]?.days ?? []
  const stacks: Stack[] = exposures.timeseries
    .filter((curve) => curve.variant !== SEVERAL)
    .map((curve) => ({ key: curve.variant, place: places.get(curve.variant) ?? places.size, counts: cumulative ? curve.exposure_counts : perDay(curve.exposure_counts) }))
    .sort((a, b) => a.place - b.place)
  const ran = started ? daysBetween(new Date(started), new Date()) : days.length
  return (
    <section class="part" aria-labelledby="people">
      <h2 id="people">People in the experiment</h2>
      <div class="card exposed">
        <div>
          <p>
            <strong>{countText(all)}</strong> {all === 1 ? "person" : "people"} in {counted(Math.max(1, ran), "day")}
          </p>
          <table class="shares">
            <caption class="unseen">People by variant, and the planned share</caption>
            <thead class="unseen">
              <tr>
                <th scope="col">Variant</th>
                <th scope="col">People</th>
                <th scope="col">Share</th>
                <th scope="col">Share as a bar</th>
              </tr>
            </thead>
            <tbody>
              {ordered.map(([key, count]) => (
                <tr key={key}>
                  <th scope="row">
                    <Dot place={places.get(key) ?? places.size} /> <Name text={key} />
                  </th>
                  <td class="number">{countText(count)}</td>
                  <td class="number">{all ? percentText(count / all) : ""}</td>
                  <td class="wide">
                    <ShareBar share={{ key, place: places.get(key) ?? places.size, count, expected: expected[key] ?? null }} largest={largest} title={`${key}: ${countText(count)}${expected[key] === undefined ? "" : `, expected ${countText(expected[key])}`}`} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
          {Object.keys(expected).length > 0 && (
            <p class="quiet key">
              <span class="tick" aria-hidden="true" /> planned share
            </p>
          )}
          <Ratio results={results} hasEnded={hasEnded} />
          {several > 0 && <p class="quiet">{counted(several, "person", "people")} saw several variants.</p>}
          {exposures.holdout && <p class="quiet">{counted(exposures.holdout.total, "person", "people")} of a holdout see none of the variants.</p>}
        </div>
        {days.length > 0 && (
          <div class="by-day">
            <div class="row">
              <h3>{cumulative ? "People so far" : "New people per day"} <span class="quiet">({zone})</span></h3>
              <Button kind="quiet" pressed={cumulative} onClick={() => setCumulative(!cumulative)}>
                Cumulative
              </Button>
            </div>
            <StackedDays days={days} stacks={stacks} title={`${cumulative ? "People up to each day" : "New people per day"}, stacked by variant: ${counted(all, "person", "people")} in ${counted(days.length, "day")}`} />
          </div>
        )}
      </div>
    </section>
  )
}

/** Whether the groups have the sizes that were asked for, with what was expected and seen. */
function Ratio({ results, hasEnded }: { results: Results; hasEnded: boolean }) {
  const mismatch = results.exposures?.sample_ratio_mismatch
  // While the experiment runs the p-value that is valid at any time decides, after its end that of a single look.
  const pValue = mismatch && pText(hasEnded ? mismatch.p_value : mismatch.anytime_p_value)
  const finding = results.health?.findings.find((each) => each.code === "sample_ratio_mismatch")
  const shared = results.exposures?.phases.some((phase) => Object.values(phase.shares).filter((share) => share > 0).length > 1)
  if (!mismatch) return <p class="quiet">{shared ? "Too few people (fewer than 100) to test whether the groups have the right sizes." : "Only one variant got people, so there are no group sizes to test."}</p>
  if (!finding) return <p class="quiet ratio">✓ The groups have the planned sizes ({pValue})</p>
  const seen = results.exposures?.total_exposures ?? {}
  return (
    <div class="caution ratio" role="note">
      <p>
        <strong>⚠ The groups have the wrong sizes ({pValue}).</strong>
      </p>
      <p>
        {Object.entries(mismatch.expected).map(([key, count], at) => (
          <span key={key}>
            {at > 0 && "; "}
            <Name text={key} />: expected {countText(count)}, seen {countText(seen[key] ?? 0)}
          </span>
        ))}
        .
      </p>
      <p>{visible(finding.advice)}</p>
    </div>
  )
}
