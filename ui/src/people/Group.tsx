// A group, such as a company, by the index of its type and its key.

import { useGet } from "../api/queryCache"
import { Name, When } from "../kit/basics"
import { Json } from "../kit/json"
import { useTitle } from "../kit/hooks"
import { Empty, Loaded } from "../kit/states"
import { clipped } from "../lib/format"

export default function GroupPage({ project, zone, id, key2 }: { project: string; zone: string; id: string; key2: string }) {
  useTitle("Group")
  const groups = useGet("/api/projects/{project_id}/groups/", { project_id: project }, { group_type_index: id, search: key2, limit: 100 })
  return (
    <Loaded answer={groups}>
      {({ results }) => {
        const group = results.find((each) => each.group_key === key2)
        if (!group)
          return (
            <Empty title="There is no such group">
              <p>
                No group of this type has the key <bdi>{clipped(key2, 200)}</bdi>, or it has no properties.
              </p>
            </Empty>
          )
        return (
          <>
            <header class="page-head">
              <h1>
                <Name text={group.group_key} />
              </h1>
            </header>
            <p class="quiet">
              First seen <When at={group.created_at} zone={zone} />.
            </p>
            <section class="card">
              <h2>Properties</h2>
              <Json value={group.group_properties} />
            </section>
          </>
        )
      }}
    </Loaded>
  )
}
