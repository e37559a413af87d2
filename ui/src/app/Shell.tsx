// The frame around every screen: navigation, notices, the palette, and the screen itself.

import { useEffect, useReducer, useRef, useState } from "preact/hooks"
import { address, note, notice, onNotice, send } from "../api/client"
import { retryFailed } from "../api/queryCache"
import { lacks, logOut, type Session } from "../api/session"
import { Button, Link } from "../kit/basics"
import { usePlace, useTitle } from "../kit/hooks"
import { Failure, Lacking, Skeleton } from "../kit/states"
import { Toasts } from "../kit/toasts"
import { visible } from "../lib/format"
import { go, href } from "../lib/router"
import { prefer, preference } from "../lib/storage"
import { WORDS } from "../lib/words"
import { Palette } from "./Palette"
import { find, type Load, type ScreenProps } from "./routes"

const RETRY_MS = 2000

const SECTIONS = (project: string) =>
  [
    ["", [["experiments", "Experiments", `/p/${project}/experiments`], ["flags", "Flags", `/p/${project}/flags`]]],
    ["Data", [["live", "Live events", `/p/${project}/events/live`], ["events", "Events", `/p/${project}/events`]]],
    ["Project", [["setup", "Set-up", `/p/${project}/setup`], ["project", "Settings", `/p/${project}/settings/project`], ["keys", "API keys", `/p/${project}/settings/keys`], ["status", "System status", "/status"]]],
  ] as const

export function Shell({ session }: { session: Session }) {
  const here = usePlace()
  const found = find(here)
  const projects = session.user.organization?.projects ?? []
  const project = found?.parts.project ?? String(session.user.team?.id ?? projects[0]?.id ?? 1)
  const missing = found && lacks(found.route.scope)
  const [palette, setPalette] = useState(false)
  return (
    <>
      <a class="skip" href="#content" onClick={skip}>
        Skip to content
      </a>
      <div class="shell">
        <Navigation session={session} project={project} section={found?.route.section ?? ""} openPalette={() => setPalette(true)} />
        <div class="stage">
          <Notices />
          <main id="content" tabindex={-1}>
            {found && missing === null && <Screen key={found.route.pattern + JSON.stringify(found.parts)} load={found.route.load} props={propsOf(found.parts, project, session)} />}
            {missing !== null && <Lacking scope={missing} />}
            {found === null && <Unknown />}
          </main>
        </div>
      </div>
      <Palette project={project} open={palette} setOpen={setPalette} />
      <Toasts />
    </>
  )
}

function onMac(): boolean {
  return /mac|iphone|ipad/i.test(navigator.platform)
}

/** A fragment would be a new address; the focus alone goes to the content. */
function skip(event: Event): void {
  event.preventDefault()
  document.getElementById("content")?.focus()
}

function propsOf(parts: Record<string, string>, project: string, session: Session): ScreenProps {
  const own = session.user.organization?.projects.find((each) => String(each.id) === project)
  return { project, zone: typeof own?.timezone === "string" ? own.timezone : "UTC", id: parts.id ?? "", key2: parts.key2 ?? "" }
}

function Screen({ load, props }: { load: Load; props: ScreenProps }) {
  const [screen, setScreen] = useState(load.now && { Content: load.now })
  const [fault, setFault] = useState<unknown>(null)
  useEffect(() => {
    let gone = false
    load().then(
      (Content) => gone || setScreen({ Content }),
      (error: unknown) => gone || setFault(error),
    )
    return () => {
      gone = true
    }
  }, [load])
  if (fault !== null) return <Failure error={fault} refetch={() => window.location.reload()} />
  return screen ? <screen.Content {...props} /> : <Skeleton rows={6} />
}

function Unknown() {
  useTitle(WORDS.unknownPage)
  return (
    <div class="empty">
      <h1>{WORDS.unknownPage}</h1>
      <p>
        Nothing is at <code>{visible(window.location.pathname.slice(0, 200))}</code>. It may have been renamed, or the link was cut.
      </p>
      <p>
        <Link to="/">Go to the experiments</Link>
      </p>
    </div>
  )
}

interface NavigationProps {
  session: Session
  project: string
  section: string
  openPalette: () => void
}

function Navigation({ session, project, section, openPalette }: NavigationProps) {
  const projects = session.user.organization?.projects ?? []
  const menu = useRef<HTMLDetailsElement>(null)
  const close = () => {
    if (menu.current) menu.current.open = false
  }
  const entries = SECTIONS(project).map(([title, links]) => (
    <div key={title}>
      {title && <h2>{title}</h2>}
      <ul>
        {links.map(([key, text, to]) => (
          <li key={key} onClick={close}>
            <Link to={to} current={key === section}>
              {text}
            </Link>
          </li>
        ))}
      </ul>
    </div>
  ))
  const chooser = projects.length > 1 && (
    <select aria-label="Project" value={project} onChange={(event) => go(`/p/${event.currentTarget.value}/experiments`)}>
      {projects.map((each) => (
        <option key={each.id} value={String(each.id)}>
          {visible(String(each.name))}
        </option>
      ))}
    </select>
  )
  return (
    <header class="side">
      <div class="brand">
        <Link to={`/p/${project}/experiments`}>hoglab</Link>
        <Button kind="quiet" onClick={openPalette}>
          <kbd class="wide-only">{onMac() ? "⌘" : "Ctrl"} K</kbd>
          <span class="when-wide-unseen">Search</span>
          <span class="unseen"> and commands</span>
        </Button>
      </div>
      {chooser}
      <nav class="wide-only" aria-label="Main">
        {entries}
        <Footer session={session} />
      </nav>
      <details class="narrow-only" ref={menu}>
        <summary>Menu</summary>
        <nav aria-label="Main">
          {entries}
          <Footer session={session} />
        </nav>
      </details>
    </header>
  )
}

function Footer({ session }: { session: Session }) {
  const [theme, setTheme] = useState(preference("theme") ?? "system")
  const change = (wanted: string) => {
    prefer("theme", wanted === "system" ? null : wanted)
    setTheme(wanted)
  }
  return (
    <div class="foot">
      <label class="filter">
        <span>Theme</span>
        <select value={theme} onChange={(event) => change(event.currentTarget.value)}>
          <option value="system">System</option>
          <option value="light">Light</option>
          <option value="dark">Dark</option>
        </select>
      </label>
      <p class="quiet">
        <bdi>{visible(String(session.user.email)).slice(0, 60)}</bdi>
      </p>
      <Button kind="quiet" onClick={() => void logOut()}>
        Log out
      </Button>
    </div>
  )
}

/** Lines at the top: the server is away, was updated, or has ended the session. */
function Notices() {
  const [, render] = useReducer((count: number) => count + 1, 0)
  const { offline, otherVersion, loggedOut } = notice()
  useEffect(() => onNotice(() => render(undefined)), [])
  useEffect(() => {
    // Not whether it is ready: what an unready server answers is no fault of the page, but browsers would say so.
    const look = () =>
      send("GET", address("/_liveness"))
        .then(retryFailed)
        .catch((error: unknown) => {
          // Any answer at all means that the server is back.
          if ((error as { status?: number }).status !== undefined) note({ offline: false })
        })
    const timer = setInterval(() => void look(), offline ? RETRY_MS : 3 * RETRY_MS)
    return () => clearInterval(timer)
  }, [offline])
  const again = () => {
    window.location.assign(`${href("/login")}?next=${encodeURIComponent(window.location.pathname + window.location.search)}`)
  }
  return (
    <div role="status" class="notices">
      {offline && <p class="notice">{WORDS.offline}</p>}
      {loggedOut && (
        <p class="notice">
          {WORDS.loggedOut}{" "}
          <button type="button" class="inline" onClick={again}>
            {WORDS.logIn}
          </button>
        </p>
      )}
      {otherVersion && (
        <p class="notice">
          {WORDS.updated}{" "}
          <button type="button" class="inline" onClick={() => window.location.reload()}>
            {WORDS.reload}
          </button>
        </p>
      )}
    </div>
  )
}
