// What endangers an experiment, with what to do about it.

import { useGet } from "../api/queryCache"
import { Badge, When } from "../kit/basics"
import { Json } from "../kit/json"
import { Loaded } from "../kit/states"
import { general, visible } from "../lib/format"

/** The numbers behind a finding with as many digits as anybody reads. */
function rounded(details: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(details).map(([name, value]) => [name, typeof value === "number" && !Number.isInteger(value) ? general(value, 3) : value]))
}

export function Health({ parts, zone }: { parts: { project_id: string; experiment_id: string }; zone: string }) {
  const health = useGet("/api/projects/{project_id}/experiments/{experiment_id}/health/", parts)
  return (
    <Loaded answer={health}>
      {(found) => (
        <section class="part">
          <h2>
            {found.findings.length === 0 ? "No problems with the results" : "Problems to check"}
          </h2>
          <ul class="findings">
            {found.findings.map((finding) => (
              <li key={finding.code} class={`card ${finding.severity}`}>
                <p>
                  <Badge kind={finding.severity}>{finding.severity}</Badge> <strong>{visible(finding.message)}</strong>
                </p>
                <p>{visible(finding.advice)}</p>
                {Object.keys(finding.details).length > 0 && <Json value={rounded(finding.details)} />}
              </li>
            ))}
          </ul>
          <p class="quiet">
            Checked <When at={found.checked_at} zone={zone} />: shares of the variants, people, the flag, and the events of metrics.
          </p>
        </section>
      )}
    </Loaded>
  )
}
