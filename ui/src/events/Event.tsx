// One event.

import { useGet } from "../api/queryCache"
import { Link, Name, When } from "../kit/basics"
import { Json } from "../kit/json"
import { useTitle } from "../kit/hooks"
import { Loaded } from "../kit/states"
import { clipped } from "../lib/format"
import { pathOf } from "../lib/router"
import { Create } from "./Create"

export default function EventPage({ project, zone, id }: { project: string; zone: string; id: string }) {
  useTitle("Event")
  const event = useGet("/api/projects/{project_id}/events/{event_id}/", { project_id: project, event_id: id })
  return (
    <Loaded answer={event}>
      {(found) => (
        <>
          <header class="page-head">
            <h1 class="grow">
              <Name text={found.event} />
            </h1>
            <div class="actions">
              <Create event={found} project={project} />
            </div>
          </header>
          <p>
            <When at={found.timestamp} zone={zone} precise /> <span class="quiet">({zone})</span>, by{" "}
            <Link to={pathOf("p", project, "person", found.distinct_id)}>
              <Name text={found.person?.name ?? found.distinct_id} />
            </Link>
          </p>
          <section class="card">
            <h2>Properties</h2>
            <Json value={found.properties} />
          </section>
          {found.elements_chain && (
            <section class="card">
              <h2>Elements</h2>
              <pre tabindex={0}>{clipped(found.elements_chain, 5000)}</pre>
            </section>
          )}
        </>
      )}
    </Loaded>
  )
}
