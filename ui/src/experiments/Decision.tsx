// The outcome of an experiment that has ended: what the verdict said, what people decided, what was shipped by whom, and how to undo it.

import { useState } from "preact/hooks"
import { patch, type Schemas } from "../api/client"
import { invalidate, useGet } from "../api/queryCache"
import { lacks } from "../api/session"
import { Button, Name, Theirs, When } from "../kit/basics"
import { Confirm } from "../kit/dialog"
import { Loaded } from "../kit/states"
import { toast } from "../kit/toasts"
import { visible } from "../lib/format"
import { contradicts, type Deed, deedsOf, disagreement, filtersBefore, shippedOf } from "./decision"
import { CONCLUSION_WORDS } from "./lifecycle"
import type { Results } from "./reading"
import { BeforeAfter } from "./Shipping"

interface Props {
  experiment: Schemas["ExperimentOut"]
  results: Results | null
  project: string
  zone: string
}

export function Decision({ experiment, results, project, zone }: Props) {
  const parts = lacks("activity_log:read") ? null : { project_id: project }
  const log = useGet("/api/projects/{project_id}/activity_log/", parts, { scope: "Experiment", item_id: experiment.id, limit: 100 })
  const [undoing, setUndoing] = useState(false)
  const deeds = deedsOf(log.value?.results ?? [])
  const now = shippedOf(experiment)
  const shipped = deeds.shipped?.shipped ?? now
  const verdict = results?.verdict ?? null
  const baseline = results?.statistics.baseline ?? null
  const against = [
    ...(verdict && shipped !== null ? [disagreement(verdict, baseline, shipped)] : []),
    ...(verdict && contradicts(verdict, experiment.conclusion) ? [`The conclusion “${CONCLUSION_WORDS[experiment.conclusion ?? ""]}” is not what the verdict says.`] : []),
  ].filter((line) => line !== null)
  return (
    <section class="card decision" aria-labelledby="decision">
      <h2 id="decision">Decision</h2>
      <dl>
        <dt>Verdict</dt>
        <dd>{verdict ? visible(verdict.headline) : results && results.status !== "partial" ? "There is none." : "It is being computed."}</dd>
        <dt>Conclusion</dt>
        <dd>
          <strong>{experiment.conclusion ? (CONCLUSION_WORDS[experiment.conclusion] ?? visible(experiment.conclusion)) : "Nobody wrote one down"}</strong>
          {experiment.conclusion_comment && (
            <>
              {": "}
              <Theirs text={experiment.conclusion_comment} most={400} />
            </>
          )}
          {"."}
          {deeds.ended && <Author deed={deeds.ended} zone={zone} verb="Ended" />}
        </dd>
        <dt>Shipped</dt>
        <dd>
          {shipped === null ? (
            "Nothing: people keep the variants that they have."
          ) : (
            <>
              <strong>
                <Name text={shipped} />
              </strong>
              .
            </>
          )}
          {deeds.shipped && <Author deed={deeds.shipped} zone={zone} verb="Shipped" />}
          {deeds.shipped && now !== deeds.shipped.shipped && " The flag has been changed since."}
          {deeds.shipped && now === deeds.shipped.shipped && experiment.feature_flag && (
            <>
              {" "}
              <Button kind="quiet" lacks={lacks("feature_flag:write")} onClick={() => setUndoing(true)}>
                Undo …
              </Button>
            </>
          )}
        </dd>
      </dl>
      {against.length > 0 && (
        <div class="caution" role="note">
          <p>
            <strong>The decision differs from the verdict.</strong> {against.join(" ")}
          </p>
        </div>
      )}
      {undoing && now !== null && <Undo experiment={experiment} variant={now} project={project} onClose={() => setUndoing(false)} />}
    </section>
  )
}

interface UndoProps {
  experiment: Schemas["ExperimentOut"]
  variant: string
  project: string
  onClose: () => void
}

/** Gives the flag the rules again that it had before a variant was shipped. */
function Undo({ experiment, variant, project, onClose }: UndoProps) {
  const flag = experiment.feature_flag
  const log = useGet("/api/projects/{project_id}/activity_log/", { project_id: project }, { scope: "FeatureFlag", item_id: flag?.id, limit: 100 })
  const before = filtersBefore(log.value?.results ?? [], variant)
  const act = async () => {
    if (!flag || before === null) return
    await patch("/api/projects/{project_id}/feature_flags/{flag_id}/", { project_id: project, flag_id: flag.id }, { filters: before })
    invalidate("/experiments/")
    invalidate("/activity_log/")
    toast("The flag has its former rules again.")
  }
  return (
    <Confirm title={`Undo shipping “${visible(variant.slice(0, 60))}”`} verb="Undo" danger ready={before !== null} act={act} onClose={onClose}>
      <Loaded answer={log}>
        {() =>
          before === null ? (
            <p>The rules of the flag were changed after the variant was shipped. Change the flag itself instead.</p>
          ) : (
            <>
              <ul>
                <li>The flag gets the rules again that it had before, and people get the variants that these give them.</li>
                <li>The experiment stays ended, and its conclusion stays.</li>
              </ul>
              <BeforeAfter now={flag?.filters ?? {}} after={before} />
            </>
          )
        }
      </Loaded>
    </Confirm>
  )
}

function Author({ deed, zone, verb }: { deed: Deed; zone: string; verb: string }) {
  return (
    <span class="quiet">
      {" "}
      {verb} by <Name text={deed.by} />, <When at={deed.at} zone={zone} />.
    </span>
  )
}
