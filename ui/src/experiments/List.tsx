// The experiments of a project: filters, order and page are in the address.

import { useEffect, useState } from "preact/hooks"
import { address } from "../api/client"
import { useAddresses, useGet } from "../api/queryCache"
import { useSession } from "../api/session"
import { Button, Link } from "../kit/basics"
import { Search, Select } from "../kit/forms"
import { usePlace, useSettled, useTitle } from "../kit/hooks"
import { Column, makersOf, MakerSelect, Pages } from "../kit/lists"
import { Empty, Loaded } from "../kit/states"
import { countText } from "../lib/format"
import { ask, pathOf } from "../lib/router"
import { Row } from "./ListRow"
import { bestOf, chunksOf, listQuery, MOST_SORTED, PAGE, sharedLimit, sorted, sortsHere, type Summary } from "./listing"

const STATUSES = [["", "Any"], ["draft", "Draft"], ["running", "Running"], ["paused", "Paused"], ["exposure_frozen", "Closed to new people"], ["stopped", "Ended"]] as const
const WAIT_MS = 2000
// Name, key of the order, and whether its largest come first.
const COLUMNS = [["Name", "name", false], ["Status", "status", false], ["Age", "duration", true], ["People", "people", true], ["Verdict", "verdict", true], ["First primary metric", "effect", true], ["Certainty", "certainty", true], ["Created by", "created_by", false]] as const

export default function Experiments({ project, zone }: { project: string; zone: string }) {
  useTitle("Experiments")
  const session = useSession()
  const { query } = usePlace()
  const value = (name: string) => query.get(name) ?? ""
  const order = value("order") || "-created_at"
  const here = sortsHere(order)
  const offset = Number(value("offset")) || 0
  const filtered = Boolean(value("search") || value("status") || value("by") || value("archived"))
  const list = useGet("/api/projects/{project_id}/experiments/", { project_id: project }, listQuery(query, order, session?.user.id))
  // What is stored of a hundred rows in one request.
  const chunks = chunksOf((list.value?.results ?? []).map((each) => each.id))
  const addresses = chunks.map((ids) => address("/api/projects/{project_id}/experiments/results_summary/", { project_id: project }, { ids }))
  const [waits, setWaits] = useState(false)
  const stored = useAddresses<Summary[]>(addresses, waits ? WAIT_MS : undefined)
  const summaries = new Map(stored.flatMap((each) => each.value ?? []).map((each) => [each.experiment_id, each]))
  // Verdicts that the server did not have at hand follow; those of all pages are not waited for.
  const waiting = !here && [...summaries.values()].some((each) => !each.is_fresh)
  useEffect(() => setWaits(waiting), [waiting])
  return (
    <>
      <header class="page-head">
        <h1 class="grow">Experiments</h1>
        <Link class="button primary" to={pathOf("p", project, "experiments", "new")}>
          New experiment
        </Link>
      </header>
      <Filters known={makersOf(list.value?.results ?? [])} />
      <Loaded answer={list} rows={8}>
        {({ count, results }) => {
          if (count === 0) return <Nothing filtered={filtered} project={project} />
          const rows = here ? sorted(results, summaries, order).slice(offset, offset + PAGE) : results
          const limit = sharedLimit(rows.flatMap((each) => [bestOf(summaries.get(each.id) ?? NOBODY)?.bounds ?? []] as [number, number][]))
          return (
            <>
              <div class="card table-card" tabindex={0} role="region" aria-label="Experiments">
                <table class="list stack experiments">
                  <thead>
                    <tr>
                      {COLUMNS.map(([name, key, largestFirst]) => (
                        <Column key={key} name={name} column={key} order={order} largestFirst={largestFirst} isNumber={key === "people" || key === "certainty"} />
                      ))}
                    </tr>
                  </thead>
                  <tbody>
                    {rows.map((each) => (
                      <Row key={each.id} experiment={each} summary={summaries.get(each.id)} limit={limit} project={project} zone={zone} />
                    ))}
                  </tbody>
                </table>
              </div>
              <Pages
                count={count}
                noun="experiment"
                offset={offset}
                size={PAGE}
                reachable={here ? results.length : count}
                note={here && count > MOST_SORTED && `, the newest ${countText(MOST_SORTED)} of them sorted`}
              />
            </>
          )
        }}
      </Loaded>
    </>
  )
}

const NOBODY = { metric: null } as Summary

function Filters({ known }: { known: [string, string][] }) {
  const { query } = usePlace()
  const value = (name: string) => query.get(name) ?? ""
  const [text, setText] = useState(value("search"))
  const search = useSettled(text, 200)
  useEffect(() => {
    if (search !== value("search")) ask({ search, offset: null })
  }, [search])
  const change = (name: string) => (wanted: string) => ask({ [name]: wanted, offset: null })
  return (
    <div class="filters" role="search">
      <Search label="Search" value={text} onInput={setText} />
      <Select label="Status" value={value("status")} options={STATUSES} onChange={change("status")} />
      <MakerSelect known={known} />
      <Select label="Archive" value={value("archived")} options={[["", "Not archived"], ["true", "Archived"]]} onChange={change("archived")} />
    </div>
  )
}

function Nothing({ filtered, project }: { filtered: boolean; project: string }) {
  if (filtered)
    return (
      <Empty title="No experiment matches">
        <p>No experiment matches these words, this status and this creator.</p>
        <p>
          <Button onClick={() => ask({ search: null, status: null, by: null, archived: null, offset: null })}>Show all</Button>
        </p>
      </Empty>
    )
  const create = address("/api/projects/{project_id}/experiments/", { project_id: project })
  const curl = `curl ${window.location.origin}${create} \\
  -H "Authorization: Bearer $KEY" -H "Content-Type: application/json" \\
  -d '{"name": "Button colour", "feature_flag_key": "button-colour"}'`
  return (
    <Empty title="No experiments yet" curl={curl}>
      <p>An experiment shows people different variants of something and finds out which one does better.</p>
      <p>Its feature flag decides who gets which variant, and its metrics decide which one does better.</p>
      <p>
        <Link class="button primary" to={pathOf("p", project, "experiments", "new")}>
          Plan the first experiment
        </Link>
      </p>
      <p>The API makes one as well; <code>make run</code> starts a demo that has one.</p>
    </Empty>
  )
}
