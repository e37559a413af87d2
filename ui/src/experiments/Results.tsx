// One experiment: header, verdict, and its results, set-up, health or history.

import { useEffect, useState } from "preact/hooks"
import { get, type Schemas } from "../api/client"
import { useGet } from "../api/queryCache"
import { Badge, Button, Link, Name, Theirs, When } from "../kit/basics"
import { Tabs } from "../kit/forms"
import { usePlace, useTitle } from "../kit/hooks"
import { saveAs } from "../kit/saving"
import { Failure, Loaded, Skeleton, told } from "../kit/states"
import { toast } from "../kit/toasts"
import { clipped } from "../lib/format"
import { pathOf } from "../lib/router"
import { STATUS_WORDS } from "../lib/words"
import { Hatches } from "../plots/hatches"
import { Actions } from "./Actions"
import { Decision } from "./Decision"
import { EXPERIMENT, type ExperimentParts, RESULTS } from "./addresses"
import { Exposures } from "./Exposures"
import { Health } from "./Health"
import { History } from "./History"
import { Setup } from "./Setup"
import { MetricTables } from "./MetricTables"
import { methodTexts, placesOf, type Results } from "./reading"
import { csvOf } from "./exported"
import { variantsOf } from "./definition"
import { VerdictCard } from "./VerdictCard"

const TABS = [["results", "Results"], ["setup", "Set-up"], ["health", "Health"], ["history", "History"]] as const
const WAIT_MS = 2000

export default function ExperimentPage({ project, id, zone }: { project: string; id: string; zone: string }) {
  const parts = { project_id: project, experiment_id: id }
  const experiment = useGet(EXPERIMENT, parts)
  const results = useResults(parts)
  const { query } = usePlace()
  const tab = TABS.find(([key]) => key === query.get("tab"))?.[0] ?? "results"
  useTitle(experiment.value ? clipped(experiment.value.name, 80) : "Experiment")
  return (
    <Loaded answer={experiment} rows={8}>
      {(found) => (
        <>
          <header class="page-head">
            <div class="grow">
              <h1>
                <Name text={found.name} /> <Badge>{found.archived ? "archived" : (STATUS_WORDS[found.status] ?? found.status)}</Badge>{" "}
                {found.feature_flag && (
                  <Link class="badge mono" to={pathOf("p", project, "flags", found.feature_flag.id)}>
                    <Name text={found.feature_flag.key} />
                  </Link>
                )}
              </h1>
              {found.description && (
                <p class="lead">
                  <Theirs text={found.description} most={600} />
                </p>
              )}
            </div>
            <Actions experiment={found} results={results.value ?? null} project={project} />
          </header>
          {found.end_date !== null && <Decision experiment={found} results={results.value ?? null} project={project} zone={zone} />}
          <Tabs tabs={TABS} current={tab} to={(key) => ({ path: pathOf("p", project, "experiments", id), query: new URLSearchParams(key === "results" ? {} : { tab: key }) })} />
          {tab === "results" && (found.start_date !== null ? <ResultsTab experiment={found} results={results} parts={parts} zone={zone} project={project} /> : <Draft />)}
          {tab === "setup" && <Setup experiment={found} zone={zone} />}
          {tab === "health" && <Health parts={parts} zone={zone} />}
          {tab === "history" && <History project={project} id={id} zone={zone} />}
        </>
      )}
    </Loaded>
  )
}

/** All results in one answer, also before the launch; asked for again while something is still being computed. */
function useResults(parts: ExperimentParts) {
  const first = useGet(RESULTS, parts)
  const partial = first.value?.status === "partial"
  return useGet(RESULTS, parts, {}, partial ? WAIT_MS : 60_000)
}

function Draft() {
  return (
    <div class="empty">
      <h2>Not launched yet</h2>
      <p>There are no results yet: the flag is off, and nobody has a variant. Check the set-up, then launch the experiment.</p>
    </div>
  )
}

interface TabProps {
  experiment: Schemas["ExperimentOut"]
  project: string
  results: { value: Results | undefined; error: unknown; refetch: () => void; loading: boolean; at: number }
  parts: ExperimentParts
  zone: string
}

function ResultsTab({ experiment, results, parts, zone, project }: TabProps) {
  if (results.value === undefined) return results.error === undefined ? <Skeleton rows={10} /> : <Failure error={results.error} refetch={results.refetch} />
  const found = results.value
  const keys = variantsOf(experiment).map((each) => each.key)
  const places = placesOf(found.statistics.baseline, keys)
  const newest = found.metrics.flatMap((metric) => metric.computed_at ?? []).sort().at(-1)
  const total = found.metrics.length
  const done = total - found.metrics.filter((metric) => metric.status === "pending").length
  return (
    <>
      {results.error !== undefined && <Failure error={results.error} refetch={results.refetch} what="The newest results could not be loaded" />}
      <VerdictCard experiment={experiment} results={found} project={project} />
      <Hatches />
      <Exposures results={found} places={places} zone={zone} started={experiment.start_date} hasEnded={experiment.end_date !== null} />
      <MetricTables experiment={experiment} results={found} places={places} parts={parts} />
      <footer class="method">
        {methodTexts(found.statistics).map((line) => (
          <p key={line}>{line}</p>
        ))}
        <p class="freshness">
          <span>{found.status === "partial" ? `Computing: ${done} of ${total} metrics are done.` : newest && <>Computed <When at={newest} zone={zone} />.</>}</span>
          <Refresh results={results} parts={parts} />
          <Button kind="quiet" onClick={() => saveAs(csvOf(found), `experiment-${found.experiment_id}.csv`, "text/csv")}>
            Download as CSV
          </Button>
        </p>
      </footer>
    </>
  )
}

/** Has everything computed anew that came since the stored results; whoever does not want to wait need not. */
function Refresh({ results, parts }: Pick<TabProps, "results" | "parts">) {
  const [waiting, setWaiting] = useState<AbortController | null>(null)
  useEffect(() => () => waiting?.abort(), [waiting])
  const refresh = async () => {
    const abort = new AbortController()
    setWaiting(abort)
    try {
      await get(RESULTS, parts, { refresh: true }, abort.signal)
      results.refetch()
    } catch (error) {
      if (!abort.signal.aborted) toast(told(error).detail)
    }
    setWaiting(null)
  }
  if (waiting === null)
    return (
      <Button kind="quiet" onClick={() => void refresh()}>
        Refresh
      </Button>
    )
  return (
    <>
      <span role="status">Computing again …</span>
      <Button kind="quiet" onClick={() => waiting.abort()}>
        Stop waiting
      </Button>
    </>
  )
}
