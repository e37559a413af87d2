// A feature flag as it is; it is changed over the API.

import { useGet } from "../api/queryCache"
import { Badge, Link, Name, Theirs, When } from "../kit/basics"
import { Json } from "../kit/json"
import { useTitle } from "../kit/hooks"
import { Loaded } from "../kit/states"
import { clipped } from "../lib/format"
import { pathOf } from "../lib/router"
import { ruleTexts } from "../lib/rules"

export default function FlagPage({ project, zone, id }: { project: string; zone: string; id: string }) {
  const flag = useGet("/api/projects/{project_id}/feature_flags/{flag_id}/", { project_id: project, flag_id: id })
  useTitle(flag.value ? clipped(flag.value.key, 80) : "Flag")
  return (
    <Loaded answer={flag}>
      {(found) => {
        const payloads = Object.entries((found.filters.payloads ?? {}) as Record<string, unknown>)
        return (
        <>
          <header class="page-head">
            <h1>
              <code>
                <Name text={found.key} />
              </code>{" "}
              <Badge kind={found.active ? "good" : ""}>{found.active ? "on" : "off"}</Badge>
            </h1>
          </header>
          {found.name && (
            <p>
              <Theirs text={found.name} most={400} />
            </p>
          )}
          <p class="quiet">
            Version {found.version}, changed <When at={found.updated_at} zone={zone} />, {found.last_called_at ? <>last asked for <When at={found.last_called_at} zone={zone} /></> : "never asked for"}.
          </p>
          {found.experiment_set_metadata.length > 0 && (
            <p>
              Decides{" "}
              {found.experiment_set_metadata.map((each) => (
                <Link key={each.id} to={pathOf("p", project, "experiments", each.id)}>
                  <Name text={each.name} />
                </Link>
              ))}
            </p>
          )}
          <section class="card">
            <h2>Rules</h2>
            <ul>
              {ruleTexts(found.filters).map((line, at) => (
                <li key={at}>{clipped(line, 600)}</li>
              ))}
            </ul>
            {payloads.length > 0 && (
              <>
                <h3>Payloads</h3>
                <dl class="json">
                  {payloads.map(([key, value]) => (
                    <div key={key}>
                      <dt>
                        <Name text={key} />
                      </dt>
                      <dd>{clipped(typeof value === "string" ? value : JSON.stringify(value), 600)}</dd>
                    </div>
                  ))}
                </dl>
              </>
            )}
            {typeof found.filters.aggregation_group_type_index === "number" && <p>It decides by groups of type {found.filters.aggregation_group_type_index}, not by people.</p>}
            <details>
              <summary>As JSON</summary>
              <Json value={found.filters} />
            </details>
          </section>
        </>
        )
      }}
    </Loaded>
  )
}
