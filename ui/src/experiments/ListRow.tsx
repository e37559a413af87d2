// One experiment in the list, with what is known of its first primary metric.

import { Badge, Link, Name } from "../kit/basics"
import { clipped, counted, countText, MISSING, visible } from "../lib/format"
import { pathOf } from "../lib/router"
import { linear } from "../lib/scale"
import { absolute, daysBetween, hourText } from "../lib/time"
import { STATUS_WORDS } from "../lib/words"
import { FOREST_EDGE } from "../plots/axis"
import { Interval } from "../plots/forest"
import { bestOf, countedAt, type Experiment, type Summary, type VerdictWords, verdictWords, warningOf } from "./listing"
import { changeText, certaintyOf, meanOf, styleOf } from "./reading"

const FOREST = 110

interface RowProps {
  experiment: Experiment
  summary: Summary | undefined
  /** Where the axis ends that all rows share. */
  limit: number
  project: string
  zone: string
}

export function Row({ experiment, summary, limit, project, zone }: RowProps) {
  const { start_date: start, end_date: end, feature_flag: flag, created_by: maker } = experiment
  const warning = warningOf(experiment, summary)
  const old = summary && summary.people !== null ? countedAt(summary) : null
  return (
    <tr>
      <th scope="row">
        <Link to={pathOf("p", project, "experiments", experiment.id)} row>
          <Name text={experiment.name} />
        </Link>
        {flag && (
          <Link class="flag-key" to={pathOf("p", project, "flags", flag.id)}>
            <Name text={flag.key} />
          </Link>
        )}
      </th>
      <td data-label="Status">
        <Badge>{experiment.archived ? "archived" : (STATUS_WORDS[experiment.status] ?? experiment.status)}</Badge>
        {experiment.conclusion && <> {experiment.conclusion.replace("_", " ")}</>}
        {warning && (
          <>
            {" "}
            <Badge kind="warning">⚠ {warning}</Badge>
          </>
        )}
      </td>
      <td data-label="Age">{start ? <time dateTime={start} title={`Since ${absolute(new Date(start), zone)} ${zone}`}>{counted(daysBetween(new Date(start), end ? new Date(end) : new Date()), "day")}</time> : MISSING}</td>
      <td class="number" data-label="People">
        {summary && summary.people !== null ? countText(summary.people) : MISSING}
        {old && (
          <span class="quiet as-of">
            as of <time dateTime={old} title={`${absolute(new Date(old), zone)} ${zone}`}>{hourText(new Date(old), zone)}</time>
          </span>
        )}
      </td>
      <td data-label="Verdict">
        <VerdictCell verdict={verdictWords(experiment, summary)} title={summary?.verdict?.headline} />
      </td>
      {summary ? <Effect summary={summary} limit={limit} /> : <td colspan={2} />}
      <td data-label="Created by">
        <Name text={String(maker?.first_name || maker?.email || MISSING)} />
      </td>
    </tr>
  )
}

function VerdictCell({ verdict, title }: { verdict: VerdictWords | null; title: string | undefined }) {
  if (!verdict) return <span class="quiet">{MISSING}</span>
  return (
    <span title={title && clipped(title, 300)}>
      {verdict.needs && <Badge kind="needs">Needs you</Badge>} {verdict.words}
    </span>
  )
}

/** The variant with the largest effect on the first primary metric, as a small forest. Nothing is marked here: the experiment's page decides. */
function Effect({ summary, limit }: { summary: Summary; limit: number }) {
  const best = bestOf(summary)
  if (!best || !summary.metric) return <td colspan={2} class="quiet" data-label="Result">{summary.metric ? "no result yet" : "no primary metric"}</td>
  const units = styleOf(summary.metric, summary.statistics)
  const axis = { limit, width: FOREST, ticks: [0], scale: linear([-limit, limit], [FOREST_EDGE, FOREST - FOREST_EDGE]) }
  return (
    <>
      <td class="effect" data-label="Effect" title={`${clipped(summary.metric.name, 80)}, ${clipped(best.row.key, 80)}`}>
        <div class="effect-line">
          <Interval axis={axis} bounds={best.bounds} effect={best.effect} tone="unclear" units={units} label={visible(best.row.key.slice(0, 80))} height={24} />
          <span class="effect-words">
            {changeText(best.effect, units, meanOf(summary.metric.metric_type, best.baseline))} <span class="quiet">{best.of > 1 && `best of ${best.of}: `}<Name text={best.row.key} /></span>
          </span>
        </div>
      </td>
      <td class="number" data-label="Certainty">{certaintyOf(best.row, summary.withholds_decisions)}</td>
    </>
  )
}
