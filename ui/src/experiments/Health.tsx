// Problems that endanger the results of an experiment, each with advice.

import { useGet } from "../api/queryCache"
import { Badge, When } from "../kit/basics"
import { Json } from "../kit/json"
import { Loaded } from "../kit/states"
import { general, visible } from "../lib/format"

const NAMES: Record<string, string> = { p_value: "p-value of a single look", anytime_p_value: "p-value that is valid at any time", exposures: "people" }

/** The numbers behind a finding, named in words and rounded to three digits. */
function inWords(details: Record<string, unknown>): Record<string, unknown> {
  const number = (value: unknown) => (typeof value === "number" && !Number.isInteger(value) ? general(value, 3) : value)
  return Object.fromEntries(Object.entries(details).map(([name, value]) => [NAMES[name] ?? name.replaceAll("_", " "), number(value)]))
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
                {Object.keys(finding.details).length > 0 && <Json value={inWords(finding.details)} />}
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
