// A person, found by uuid or by any distinct id, as links in messages name them.

import { useGet } from "../api/queryCache"
import { lacks } from "../api/session"
import { Link, Name, When } from "../kit/basics"
import { Json } from "../kit/json"
import { useTitle } from "../kit/hooks"
import { Empty, Loaded } from "../kit/states"
import { clipped, counted, visible } from "../lib/format"
import { pathOf } from "../lib/router"
import { WORDS } from "../lib/words"

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i

const SHOWN_IDS = 50

export default function PersonPage({ project, zone, id }: { project: string; zone: string; id: string }) {
  useTitle("Person")
  const byId = useGet("/api/projects/{project_id}/persons/", { project_id: project }, { distinct_id: id, limit: 1 })
  const missing = byId.value?.results.length === 0 && UUID.test(id)
  const byUuid = useGet("/api/projects/{project_id}/persons/{person_id}/", missing ? { project_id: project, person_id: id } : null)
  const person = missing ? byUuid.value : byId.value?.results[0]
  const unknown = byId.value !== undefined && !missing && person === undefined
  const blind = lacks("query:read")
  const events = useGet("/api/projects/{project_id}/events/", person && blind === null ? { project_id: project } : null, { person_id: person?.uuid, limit: 20 })
  if (unknown)
    return (
      <Empty title="There is no such person">
        <p>
          No person has the id <bdi>{clipped(id, 200)}</bdi>. The person was erased, or has only events without a person profile.
        </p>
        <p>
          <Link to={pathOf("p", project, "events")} query={new URLSearchParams({ distinct_id: id })}>
            Show events with this id
          </Link>
        </p>
      </Empty>
    )
  return (
    <Loaded<unknown> answer={missing ? byUuid : byId}>
      {() =>
        person && (
          <>
            <header class="page-head">
              <h1>
                <Name text={person.name} />
              </h1>
            </header>
            <p class="quiet">
              {person.is_identified ? "Identified" : "Anonymous"}, first seen <When at={person.created_at} zone={zone} />, last seen <When at={person.last_seen_at} zone={zone} />.
            </p>
            <div class="two">
              <section class="card">
                <h2>Properties</h2>
                <Json value={person.properties} />
              </section>
              <section class="card">
                <h2>{counted(person.distinct_ids_count ?? person.distinct_ids.length, "distinct id")}</h2>
                <ul>
                  {person.distinct_ids.slice(0, SHOWN_IDS).map((each) => (
                    <li key={each}>
                      <code>
                        <bdi>{visible(each.slice(0, 400))}</bdi>
                      </code>
                    </li>
                  ))}
                  {person.distinct_ids.length > SHOWN_IDS && <li class="quiet">and {counted(person.distinct_ids.length - SHOWN_IDS, "other", "others")}</li>}
                </ul>
              </section>
            </div>
            <section class="part">
              <h2>Newest events</h2>
              {blind && <p>{WORDS.needsScope(blind)}</p>}
              {blind === null && <Loaded answer={events}>
                {({ results }) => (
                  <>
                    <ol class="history">
                      {results.map((event) => (
                        <li key={event.uuid}>
                          <When at={event.timestamp} zone={zone} />
                          <Link to={pathOf("p", project, "events", event.uuid)}>
                            <Name text={event.event} />
                          </Link>
                        </li>
                      ))}
                    </ol>
                    {results.length === 0 && <p>No events are stored.</p>}
                  </>
                )}
              </Loaded>}
            </section>
          </>
        )
      }
    </Loaded>
  )
}
