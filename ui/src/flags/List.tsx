// The flags of a project: the server searches, sorts and pages; filters, order and page are in the address.

import { useEffect, useRef, useState } from "preact/hooks"
import { address } from "../api/client"
import { useGet } from "../api/queryCache"
import { lacks, useSession } from "../api/session"
import { Badge, Button, Link, Name, When } from "../kit/basics"
import { Search, Select } from "../kit/forms"
import { usePlace, useSettled, useTitle } from "../kit/hooks"
import { Column, makersOf, MakerSelect, makerText, Pages } from "../kit/lists"
import { Empty, Loaded } from "../kit/states"
import { clipped, MISSING, visible } from "../lib/format"
import { ask, go, pathOf } from "../lib/router"
import { DEFAULT_ORDER, type Flag, FLAGS, givenTo, listQuery, PAGE } from "./model"
import { Switch } from "./Switch"

const STATES = [["", "Any"], ["true", "On"], ["false", "Off"], ["STALE", "Stale"]] as const
const KINDS = [["", "Any"], ["boolean", "On or off"], ["multivariant", "Variants"], ["experiment", "Experiment"], ["remote_config", "Setting"]] as const
const FILTERS = ["search", "active", "type", "by", "tag", "archived"] as const
const STALE = "Stale: no SDK has asked for it in 30 days, or everybody gets the same. It may be ready to be removed from your code."

export default function Flags({ project, zone }: { project: string; zone: string }) {
  useTitle("Flags")
  const session = useSession()
  const { query } = usePlace()
  const order = query.get("order") || DEFAULT_ORDER
  const offset = Number(query.get("offset")) || 0
  const flags = useGet(FLAGS, { project_id: project }, listQuery(query, session?.user.id))
  const column = (name: string, key: string, largestFirst = false) => <Column name={name} column={key} order={order} largestFirst={largestFirst} />
  return (
    <>
      <header class="page-head">
        <h1 class="grow">Flags</h1>
        <NewFlag project={project} />
      </header>
      <Filters flags={flags.value?.results ?? []} />
      <Loaded answer={flags} rows={8}>
        {({ count, results }) =>
          count === 0 ? (
            <Nothing filtered={FILTERS.some((name) => query.get(name))} project={project} />
          ) : (
            <>
              <div class="card table-card" tabindex={0} role="region" aria-label="Flags">
                <table class="list stack flags">
                  <thead>
                    <tr>
                      {column("Flag", "key")}
                      <th scope="col">State</th>
                      <th scope="col">On for</th>
                      <th scope="col">Experiment</th>
                      <th scope="col">Created by</th>
                      {column("Changed", "updated_at", true)}
                    </tr>
                  </thead>
                  <tbody>
                    {results.map((flag) => (
                      <Row key={flag.id} flag={flag} project={project} zone={zone} />
                    ))}
                  </tbody>
                </table>
              </div>
              <Pages count={count} noun="flag" offset={offset} size={PAGE} />
            </>
          )
        }
      </Loaded>
    </>
  )
}

function Row({ flag, project, zone }: { flag: Flag; project: string; zone: string }) {
  return (
    <tr>
      <th scope="row">
        <Link to={pathOf("p", project, "flags", flag.id)} row>
          <Name text={flag.key} />
        </Link>
        {flag.name && (
          <span class="about">
            <Name text={flag.name} />
          </span>
        )}
        {flag.tags.length > 0 && (
          <span class="tags">
            {flag.tags.slice(0, 5).map((tag) => (
              <Badge key={tag}>{clipped(tag, 30)}</Badge>
            ))}
          </span>
        )}
      </th>
      <td data-label="State">
        <Switch flag={flag} project={project} />
        {flag.status === "STALE" && (
          <span title={STALE}>
            <Badge kind="warning">stale</Badge>
          </span>
        )}
        {flag.archived && <Badge>archived</Badge>}
      </td>
      <td data-label="On for" class={flag.active ? undefined : "quiet"}>
        {clipped(givenTo(flag), 120)}
      </td>
      <td data-label="Experiment">
        {flag.experiment_set_metadata.length === 0 && <span class="quiet">{MISSING}</span>}
        {flag.experiment_set_metadata.slice(0, 2).map((experiment) => (
          <Link key={experiment.id} class="about" to={pathOf("p", project, "experiments", experiment.id)}>
            <Name text={experiment.name} />
          </Link>
        ))}
        {flag.experiment_set_metadata.length > 2 && <span class="about">and {flag.experiment_set_metadata.length - 2} more</span>}
      </td>
      <td data-label="Created by">
        <Name text={flag.created_by ? makerText(flag.created_by) : MISSING} />
      </td>
      <td data-label="Changed">
        <When at={flag.updated_at} zone={zone} />
      </td>
    </tr>
  )
}

function Filters({ flags }: { flags: readonly Flag[] }) {
  const { query } = usePlace()
  const value = (name: string) => query.get(name) ?? ""
  const [text, setText] = useState(value("search"))
  const search = useSettled(text, 150)
  useEffect(() => {
    if (search !== value("search")) ask({ search, offset: null })
  }, [search])
  // A tag that was seen, or that the address names, can be chosen.
  const tags = useRef(new Set<string>())
  for (const tag of [...flags.flatMap((flag) => flag.tags), value("tag")]) if (tag) tags.current.add(tag)
  const change = (name: string) => (wanted: string) => ask({ [name]: wanted, offset: null })
  return (
    <div class="filters" role="search">
      <Search label="Search" value={text} onInput={setText} />
      <Select label="State" value={value("active")} options={STATES} onChange={change("active")} />
      <Select label="Kind" value={value("type")} options={KINDS} onChange={change("type")} />
      <MakerSelect known={makersOf(flags)} />
      {tags.current.size > 0 && <Select label="Tag" value={value("tag")} options={[["", "Any"], ...[...tags.current].sort().map((tag) => [tag, visible(tag.slice(0, 60))] as const)]} onChange={change("tag")} />}
      <Select label="Archive" value={value("archived")} options={[["", "Not archived"], ["true", "Archived"]]} onChange={change("archived")} />
    </div>
  )
}

function NewFlag({ project }: { project: string }) {
  return (
    <Button kind="primary" lacks={lacks("feature_flag:write")} onClick={() => go(pathOf("p", project, "flags", "new"))}>
      New flag
    </Button>
  )
}

function Nothing({ filtered, project }: { filtered: boolean; project: string }) {
  if (filtered)
    return (
      <Empty title="No flag matches">
        <p>No flag has these words in its key or name, and this state, kind, creator and tag.</p>
        <p>
          <Button onClick={() => ask({ ...Object.fromEntries(FILTERS.map((name) => [name, null])), offset: null })}>Show all</Button>
        </p>
      </Empty>
    )
  const curl = `curl ${window.location.origin}${address(FLAGS, { project_id: project })} \\
  -H "Authorization: Bearer $KEY" -H "Content-Type: application/json" \\
  -d '{"key": "new-checkout", "filters": {"groups": [{"rollout_percentage": 10}]}}'`
  return (
    <Empty title="No flags yet" curl={curl}>
      <p>A flag switches a part of your product on or off for some people, without a new release.</p>
      <p>Start with a small share of everyone, look at what happens, then give it to all, or switch it off at once.</p>
      <p>Your code asks an SDK for the flag by its key. An experiment creates its flag by itself.</p>
    </Empty>
  )
}
