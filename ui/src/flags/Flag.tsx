// One feature flag: who gets what of it, the form to change it, and its history.

import { useState } from "preact/hooks"
import { address, patch } from "../api/client"
import { invalidate, useAddresses, useGet } from "../api/queryCache"
import { lacks } from "../api/session"
import { Badge, Button, Link, Menu, Name, Theirs, When } from "../kit/basics"
import { Confirm } from "../kit/dialog"
import { Tabs } from "../kit/forms"
import { usePlace, useTitle } from "../kit/hooks"
import { Json } from "../kit/json"
import { Loaded, told } from "../kit/states"
import { toast } from "../kit/toasts"
import { clipped, visible } from "../lib/format"
import { ask, go, pathOf, withQuery } from "../lib/router"
import { draftOf, sentenceOf } from "./draft"
import { Editor } from "./Editor"
import { History } from "./History"
import { FLAG, type Flag, runningOf } from "./model"
import { Switch } from "./Switch"
import { WhoGetsIt } from "./WhoGetsIt"

const TABS = [["", "Rules"], ["history", "History"]] as const

export default function FlagPage({ project, zone, id }: { project: string; zone: string; id: string }) {
  const isNew = id === "new"
  const flag = useGet(FLAG, isNew ? null : { project_id: project, flag_id: id })
  useTitle(isNew ? "New flag" : flag.value ? clipped(flag.value.key, 80) : "Flag")
  if (isNew)
    return (
      <>
        <header class="page-head">
          <h1>New flag</h1>
        </header>
        <Editor flag={null} names={new Map()} project={project} />
      </>
    )
  return <Loaded answer={flag}>{(found) => <Page flag={found} project={project} zone={zone} />}</Loaded>
}

/** The names behind the ids in the conditions of a flag: of flags by id, of cohorts as "cohort 7", of kinds of groups as "type 0". */
function useNames(flag: Flag, project: string): ReadonlyMap<string, string> {
  const conditions = draftOf(flag).conditions.flatMap(({ properties }) => properties)
  const idsOf = (kind: string, id: (property: (typeof conditions)[number]) => string) => [...new Set(conditions.filter(({ type }) => type === kind).map(id))].filter((found) => /^\d+$/.test(found)).slice(0, 20)
  const flags = idsOf("flag", ({ key }) => key)
  const cohorts = lacks("cohort:read") === null ? idsOf("cohort", ({ value }) => String(value)) : []
  const found = useAddresses<{ key?: string; name?: string | null }>([
    ...flags.map((flagId) => address(FLAG, { project_id: project, flag_id: flagId })),
    ...cohorts.map((cohort) => address("/api/projects/{project_id}/cohorts/{cohort_id}/", { project_id: project, cohort_id: cohort })),
  ])
  const types = useGet("/api/projects/{project_id}/groups_types/", typeof flag.filters.aggregation_group_type_index === "number" && lacks("group:read") === null ? { project_id: project } : null)
  const names = new Map<string, string>()
  flags.forEach((flagId, at) => names.set(flagId, found[at]?.value?.key ?? flagId))
  cohorts.forEach((cohort, at) => names.set(`cohort ${cohort}`, found[flags.length + at]?.value?.name ?? cohort))
  for (const type of types.value ?? []) names.set(`type ${type.group_type_index}`, `${type.group_type} groups`)
  return names
}

function Page({ flag, project, zone }: { flag: Flag; project: string; zone: string }) {
  const { path, query } = usePlace()
  const names = useNames(flag, project)
  const tab = query.get("tab") ?? ""
  const editing = query.get("edit") !== null
  return (
    <>
      <header class="page-head">
        <div class="grow">
          <h1>
            <code>
              <Name text={flag.key} />
            </code>
            {flag.status === "STALE" && <Badge kind="warning">stale</Badge>}
            {flag.archived && <Badge>archived</Badge>}
          </h1>
          {flag.name && (
            <p class="lead">
              <Theirs text={flag.name} most={400} />
            </p>
          )}
        </div>
        <Switch flag={flag} project={project} />
        {!editing && <Actions flag={flag} project={project} />}
      </header>
      <p class="quiet">
        Version {flag.version}, changed <When at={flag.updated_at} zone={zone} />, {flag.last_called_at ? <>last asked for <When at={flag.last_called_at} zone={zone} /></> : "never asked for"}.{" "}
        {flag.tags.map((tag) => (
          <Badge key={tag}>{clipped(tag, 30)}</Badge>
        ))}
      </p>
      {flag.experiment_set_metadata.length > 0 && (
        <p>
          Decides{" "}
          {flag.experiment_set_metadata.map((experiment) => (
            <Link key={experiment.id} to={pathOf("p", project, "experiments", experiment.id)}>
              <Name text={experiment.name} />
            </Link>
          ))}
        </p>
      )}
      {editing ? (
        // Not keyed by version: a change that somebody else makes meanwhile does not take away what is typed.
        <Editor key={flag.id} flag={flag} names={names} project={project} />
      ) : (
        <>
          <Tabs tabs={TABS} current={tab} to={(wanted) => ({ path, query: withQuery(query, { tab: wanted }) })} />
          {tab === "history" ? <History flag={flag} names={names} project={project} zone={zone} /> : <Rules flag={flag} names={names} project={project} />}
        </>
      )}
    </>
  )
}

function Rules({ flag, names, project }: { flag: Flag; names: ReadonlyMap<string, string>; project: string }) {
  const draft = draftOf(flag)
  const payloads = Object.entries(draft.payloads)
  return (
    <div class="flag-page">
      <div class="flag-main">
        <section class="card">
          <h2>Rules</h2>
          {!flag.active && <p class="caution">The flag is off: nobody gets it, whatever the rules say.</p>}
          <ol class="sentences">
            {draft.conditions.map((condition, at) => (
              <li key={at}>{clipped(sentenceOf(condition, names, draft.by), 600)}</li>
            ))}
          </ol>
          {draft.by !== "" && <p>It decides by {visible(names.get(`type ${draft.by}`) ?? `groups of type ${draft.by}`)}, not by people.</p>}
          {draft.persists && <p>People keep what they got when they log in.</p>}
          {draft.variants.length > 0 && (
            <>
              <h3>Variants</h3>
              <ul>
                {draft.variants.map(({ key, share }) => (
                  <li key={key}>
                    <Name text={key} /> {share}%
                  </li>
                ))}
              </ul>
            </>
          )}
          {payloads.length > 0 && (
            <>
              <h3>Payloads</h3>
              <dl class="json">
                {payloads.map(([key, value]) => (
                  <div key={key}>
                    <dt>
                      <Name text={key} />
                    </dt>
                    <dd>{clipped(value, 600)}</dd>
                  </div>
                ))}
              </dl>
            </>
          )}
          <details>
            <summary>As JSON</summary>
            <Json value={flag.filters} />
          </details>
        </section>
      </div>
      <WhoGetsIt flag={flag} changes={{}} ready by={draft.by} project={project} />
    </div>
  )
}

function Actions({ flag, project }: { flag: Flag; project: string }) {
  const [asked, setAsked] = useState<"delete" | "archive" | null>(null)
  const missing = lacks("feature_flag:write")
  const parts = { project_id: project, flag_id: flag.id }
  const key = clipped(flag.key, 60)
  const close = () => setAsked(null)
  const change = async (changes: object, words: string) => {
    await patch(FLAG, parts, changes)
    invalidate("/feature_flags/")
    toast(words)
  }
  const remove = async () => {
    await patch(FLAG, parts, { deleted: true })
    invalidate("/feature_flags/")
    const undo = () => void change({ deleted: false }, `${key} is back.`).catch((error: unknown) => toast(told(error).detail))
    toast(`Deleted ${key}.`, { label: "Undo", act: undo })
    go(pathOf("p", project, "flags"))
  }
  return (
    <div class="actions">
      <Button lacks={missing} onClick={() => ask({ edit: "yes", tab: null }, { replace: false })}>
        Edit
      </Button>
      <Menu label="More">
        <Button lacks={missing} onClick={() => (flag.archived ? void change({ archived: false }, `${key} is out of the archive.`) : setAsked("archive"))}>
          {flag.archived ? "Take out of the archive" : "Archive …"}
        </Button>
        <Button lacks={missing} onClick={() => setAsked("delete")}>
          Delete …
        </Button>
      </Menu>
      {asked === "archive" && (
        <Confirm title={`Archive “${key}”`} verb="Archive" act={() => change({ archived: true, active: false }, `${key} is in the archive.`)} onClose={close}>
          <p>The flag is switched off, and lists leave it out. You can take it out of the archive again.</p>
        </Confirm>
      )}
      {asked === "delete" && (
        <Confirm title={`Delete “${key}”`} verb="Delete" danger act={remove} onClose={close}>
          <ul>
            <li>SDKs no longer know the flag: code that asks for it gets its own default.</li>
            {flag.experiment_set_metadata.map((experiment) => (
              <li key={experiment.id}>The experiment “{visible(experiment.name.slice(0, 80))}” loses its flag{runningOf(flag).includes(experiment.name) ? ", and it is running: end it first" : ""}.</li>
            ))}
            <li>Flags that depend on it stop a deletion, and are named.</li>
          </ul>
        </Confirm>
      )}
    </div>
  )
}
