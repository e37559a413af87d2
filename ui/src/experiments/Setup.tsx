// How an experiment is set up, in words: hypothesis, variants, who takes part, metrics, dates.

import type { Schemas } from "../api/client"
import { Dot, Name, Theirs, When } from "../kit/basics"
import { visible } from "../lib/format"
import { object } from "../lib/loose"
import { ruleTexts } from "../lib/rules"
import { definitionTexts, exposureTexts, metricDefinition, variantsOf } from "./definition"

export function Setup({ experiment, zone }: { experiment: Schemas["ExperimentOut"]; zone: string }) {
  const metrics = allMetrics(experiment)
  return (
    <div class="two">
      <section class="card">
        <h2>Why</h2>
        <p>{experiment.description ? <Theirs text={experiment.description} /> : "Nobody wrote down a hypothesis."}</p>
        <h3>When</h3>
        <p>
          {experiment.start_date === null ? (
            "Not launched yet"
          ) : (
            <>
              {experiment.end_date === null ? "Since" : "From"} <When at={experiment.start_date} zone={zone} precise />
              {experiment.end_date && (
                <>
                  {" "}
                  to <When at={experiment.end_date} zone={zone} precise />
                </>
              )}{" "}
              <span class="quiet">({zone})</span>
            </>
          )}
          , created <When at={experiment.created_at} zone={zone} />.
        </p>
      </section>
      <section class="card">
        <h2>Variants</h2>
        <ul class="plain">
          {variantsOf(experiment).map((variant, at) => (
            <li key={variant.key}>
              <Dot place={at} /> <Name text={variant.key} /> {variant.share === null ? "" : `${variant.share}%`}
            </li>
          ))}
        </ul>
        <h3>Who gets them</h3>
        <ul>
          {ruleTexts({ groups: object(experiment.feature_flag?.filters).groups }).map((line, at) => (
            <li key={at}>{visible(line)}</li>
          ))}
        </ul>
      </section>
      <section class="card">
        <h2>Who takes part</h2>
        {exposureTexts(experiment).map((line) => (
          <p key={line}>{visible(line)}</p>
        ))}
      </section>
      <section class="card">
        <h2>Metrics</h2>
        {metrics.length === 0 && <p>There are no metrics yet.</p>}
        {metrics.map(([uuid, name, primary]) => (
          <div key={uuid} class="metric-words">
            <h3>
              <Name text={name} /> <span class="quiet">{primary ? "primary" : "secondary"}</span>
            </h3>
            <p>{visible(definitionTexts(metricDefinition(experiment, uuid)).join(" "))}</p>
          </div>
        ))}
      </section>
    </div>
  )
}

function allMetrics(experiment: object): [string, string, boolean][] {
  const of = (list: unknown, primary: boolean): [string, string, boolean][] =>
    (Array.isArray(list) ? list : []).map((each: { uuid?: string; name?: string }) => [String(each.uuid), each.name ?? "Metric without a name", primary])
  const { metrics, metrics_secondary: secondary } = experiment as { metrics?: unknown; metrics_secondary?: unknown }
  return [...of(metrics, true), ...of(secondary, false)]
}
