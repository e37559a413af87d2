// The choice of a variant to ship: each with its effect, and what the flag does before and after.

import { useId } from "preact/hooks"
import type { Schemas } from "../api/client"
import { Dot, Name } from "../kit/basics"
import { counted, visible } from "../lib/format"
import { ruleTexts } from "../lib/rules"
import { disagreement } from "./decision"
import { variantsOf } from "./definition"
import { shipped, switching } from "./lifecycle"
import { placesOf, type Reading, readingsOf, type Results } from "./reading"

interface Props {
  experiment: Schemas["ExperimentOut"]
  results: Results | null
  totals: Readonly<Record<string, number>>
  variant: string | null
  setVariant: (key: string) => void
  everyone: boolean
  setEveryone: (on: boolean) => void
}

const MARKS = { better: "▲ better", worse: "▼ worse", unclear: "" } as const

export function Shipping({ experiment, results, totals, variant, setVariant, everyone, setEveryone }: Props) {
  const id = useId()
  const keys = variantsOf(experiment).map((each) => each.key)
  const filters = (experiment.feature_flag?.filters ?? {}) as Record<string, unknown>
  const baseline = results?.statistics.baseline ?? null
  const places = placesOf(baseline, keys)
  const against = variant !== null && results?.verdict ? disagreement(results.verdict, baseline, variant) : null
  return (
    <>
      <fieldset class="choices">
        <legend>Variant</legend>
        {keys.map((key) => (
          <label key={key} class="choice">
            <input type="radio" name={id} value={key} checked={variant === key} onChange={() => setVariant(key)} />
            <span>
              <Dot place={places.get(key) ?? places.size} /> <Name text={key} />
            </span>
            <span class="quiet">{key === baseline ? "baseline" : results && <Effects results={results} places={places} variant={key} />}</span>
          </label>
        ))}
      </fieldset>
      {against && <p class="caution">{against}</p>}
      {variant !== null && (
        <p>
          {counted(switching(totals, variant), "person", "people")} of the experiment will see <strong>{visible(variant)}</strong> instead of another variant.
          {experiment.end_date === null && " The experiment ends."}
        </p>
      )}
      <p>
        <input id={`${id}-all`} type="checkbox" checked={everyone} onChange={(event) => setEveryone(event.currentTarget.checked)} /> <label for={`${id}-all`}>Release to everybody, ignoring the flag's conditions</label>
      </p>
      {variant !== null && <BeforeAfter now={filters} after={shipped(filters, variant, everyone)} />}
    </>
  )
}

/** The effects of a variant on the primary metrics, as the page shows them. */
function Effects({ results, places, variant }: { results: Results; places: ReadonlyMap<string, number>; variant: string }) {
  const rows = results.metrics
    .filter((metric) => metric.is_primary)
    .flatMap((metric) => readingsOf(results, metric, places).filter((reading) => reading.key === variant).map((reading) => [metric.name, reading] as const))
  if (rows.length === 0) return <>no result</>
  return (
    <>
      {rows.map(([name, reading]) => (
        <span key={name} class="effect-of">
          <Name text={name} />: {effectWords(reading)}
        </span>
      ))}
    </>
  )
}

function effectWords(reading: Reading): string {
  if (reading.change === null) return "no result"
  return [reading.change, MARKS[reading.tone]].filter(Boolean).join(" ")
}

/** The rules of a flag as they are and as they will be. */
export function BeforeAfter({ now, after }: { now: object; after: object }) {
  const rules = [["Now", now], ["After", after]] as const
  return (
    <div class="before-after">
      {rules.map(([title, each]) => (
        <div key={title}>
          <h3>{title}</h3>
          <ul class="rules">
            {ruleTexts(each).map((line, at) => (
              <li key={at}>{visible(line)}</li>
            ))}
          </ul>
        </div>
      ))}
    </div>
  )
}
