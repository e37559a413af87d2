// What came out of an experiment that has ended: what the verdict said, what people decided, and what was shipped by whom.

import type { Schemas } from "../api/client"
import { useGet } from "../api/queryCache"
import { lacks } from "../api/session"
import { Name, Theirs, When } from "../kit/basics"
import { visible } from "../lib/format"
import { contradicts, type Deed, deedsOf, disagreement, shippedOf } from "./decision"
import { CONCLUSION_WORDS } from "./lifecycle"
import type { Results } from "./reading"

interface Props {
  experiment: Schemas["ExperimentOut"]
  results: Results | null
  project: string
  zone: string
}

export function Decision({ experiment, results, project, zone }: Props) {
  const parts = lacks("activity_log:read") ? null : { project_id: project }
  const log = useGet("/api/projects/{project_id}/activity_log/", parts, { scope: "Experiment", item_id: experiment.id, limit: 100 })
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
          <strong>{experiment.conclusion ? (CONCLUSION_WORDS[experiment.conclusion] ?? visible(experiment.conclusion)) : "None was written down"}</strong>
          {experiment.conclusion_comment && (
            <>
              {": "}
              <Theirs text={experiment.conclusion_comment} most={400} />
            </>
          )}
          {deeds.ended && <Author deed={deeds.ended} zone={zone} verb="Ended" />}
        </dd>
        <dt>Shipped</dt>
        <dd>
          {shipped === null ? (
            "Nothing: people keep the variants that they have."
          ) : (
            <strong>
              <Name text={shipped} />
            </strong>
          )}
          {deeds.shipped && <Author deed={deeds.shipped} zone={zone} verb="Shipped" />}
          {deeds.shipped && now !== deeds.shipped.shipped && " The flag has been changed since."}
        </dd>
      </dl>
      {against.length > 0 && (
        <div class="caution" role="note">
          <p>
            <strong>People decided otherwise than the verdict.</strong> {against.join(" ")}
          </p>
        </div>
      )}
    </section>
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
