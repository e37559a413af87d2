// Which of three things is to be seen: nothing yet, the page to log in, or the shell with a screen.

import { useEffect, useLayoutEffect, useState } from "preact/hooks"
import { useGet } from "../api/queryCache"
import { lacks, type Session, useSession } from "../api/session"
import { usePlace } from "../kit/hooks"
import { Failure, Skeleton } from "../kit/states"
import { go, href, place } from "../lib/router"
import { withProject } from "./routes"
import { Shell } from "./Shell"
import { start } from "./ahead"
import { Login } from "./Login"

/** `first`: who is logged in, asked for at the start of the page. */
export function Application({ first: asked }: { first: Promise<Session | null> }) {
  const [ready, setReady] = useState(false)
  const [fault, setFault] = useState<unknown>(null)
  const session = useSession()
  const here = usePlace()
  const wait = (answer: Promise<Session | null>) => {
    setFault(null)
    answer.then(() => setReady(true), setFault)
  }
  useLayoutEffect(() => wait(asked), [])
  const first = session?.user.team?.id
  const whole = here.path !== "/login" && first !== undefined ? withProject(here.path, first) : null
  useEffect(() => {
    if (whole) go(whole, place().query, { replace: true })
  }, [whole])
  if (fault !== null) return <main class="alone"><Failure error={fault} refetch={() => wait(start())} /></main>
  if (!ready) return <main class="alone"><Skeleton /></main>
  if (session === null || here.path === "/login") return <Login session={session} back={backOf(here.path, here.query)} />
  if (whole) return null
  if (here.path === "/" && first !== undefined) return <Start project={first} />
  return <Shell session={session} />
}

/** The first page: the set-up while no event has come, then the experiments. */
function Start({ project }: { project: number }) {
  const blind = lacks("query:read") !== null
  const events = useGet("/api/projects/{project_id}/events/", blind ? null : { project_id: project }, { limit: 1 })
  const known = blind || events.value !== undefined || events.error !== undefined
  useEffect(() => {
    if (known) go(`/p/${project}/${events.value?.results.length === 0 ? "setup" : "experiments"}`, undefined, { replace: true })
  }, [known])
  return <main class="alone"><Skeleton /></main>
}

/** Where to go after logging in: the address that was wanted, never one of another site. */
function backOf(path: string, query: URLSearchParams): string {
  if (path !== "/login") return href(path, query)
  const wanted = query.get("next") ?? ""
  return wanted.startsWith(href("/")) && !wanted.includes("\\") && !wanted.startsWith("//") ? wanted : href("/")
}
