// Commands and search by keyboard, and the shortcuts of the page.

import { useEffect, useId, useRef, useState } from "preact/hooks"
import { useGet } from "../api/queryCache"
import { lacks } from "../api/session"
import { Dialog } from "../kit/dialog"
import { useSettled } from "../kit/hooks"
import { clipped } from "../lib/format"
import { go, pathOf } from "../lib/router"
import { prefer, preference } from "../lib/storage"
import { type Command, exactFirst, matching, SHORTCUTS, shortcutOf } from "./commands"

interface Props {
  project: string
  open: boolean
  setOpen: (open: boolean) => void
}

export function Palette({ project, open, setOpen }: Props) {
  const [help, setHelp] = useState(false)
  const before = useRef<{ key: string; at: number } | null>(null)
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault()
        setOpen(true)
        return
      }
      if (event.ctrlKey || event.metaKey || event.altKey || preference("shortcuts") === "off" || isTyping(event.target) || document.querySelector("dialog[open]")) return
      const previous = before.current && event.timeStamp - before.current.at < 1500 ? before.current.key : ""
      before.current = { key: event.key, at: event.timeStamp }
      const wanted = shortcutOf(previous, event.key)
      if (wanted === null) return
      event.preventDefault()
      before.current = null
      if (wanted === "help") setHelp(true)
      else if (wanted === "search") document.querySelector<HTMLElement>("[data-search]")?.focus()
      else if (wanted === "next" || wanted === "previous") moveRow(wanted === "next" ? 1 : -1)
      else go(wanted === "/status" ? wanted : `/p/${project}${wanted}`)
    }
    window.addEventListener("keydown", press)
    return () => window.removeEventListener("keydown", press)
  }, [project])
  return (
    <>
      {open && <Search project={project} onClose={() => setOpen(false)} />}
      {help && <Help onClose={() => setHelp(false)} />}
    </>
  )
}

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName))
}

/** The focus goes to the next or previous row of the page's list. */
function moveRow(by: number): void {
  const rows = [...document.querySelectorAll<HTMLElement>("[data-row]")]
  const at = rows.findIndex((row) => row === document.activeElement)
  rows[Math.max(0, Math.min(rows.length - 1, at === -1 ? (by > 0 ? 0 : rows.length - 1) : at + by))]?.focus()
}

const PAGES = (project: string): Command[] => [
  { text: "Experiments", kind: "Go to", to: `/p/${project}/experiments` },
  { text: "New experiment", kind: "Create", to: `/p/${project}/experiments/new` },
  { text: "Flags", kind: "Go to", to: `/p/${project}/flags` },
  { text: "New flag", kind: "Create", to: `/p/${project}/flags/new` },
  { text: "Live events", kind: "Go to", to: `/p/${project}/events/live` },
  { text: "System status", kind: "Go to", to: "/status" },
  { text: "Events", kind: "Go to", to: `/p/${project}/events` },
  { text: "Set-up", kind: "Go to", to: `/p/${project}/setup` },
  { text: "Project settings", kind: "Go to", to: `/p/${project}/settings/project` },
  { text: "API keys", kind: "Go to", to: `/p/${project}/settings/keys` },
]

function Search({ project, onClose }: { project: string; onClose: () => void }) {
  const [text, setText] = useState("")
  const [at, setAt] = useState(0)
  const id = useId()
  const searched = useSettled(text.trim(), 120)
  const where = (scope: string) => (searched.length > 1 && lacks(scope) === null ? { project_id: project } : null)
  const wanted = { search: searched, limit: 5 }
  const experiments = useGet("/api/projects/{project_id}/experiments/", where("experiment:read"), wanted)
  const flags = useGet("/api/projects/{project_id}/feature_flags/", where("feature_flag:read"), wanted)
  const functions = useGet("/api/projects/{project_id}/hog_functions/", where("hog_function:read"), wanted)
  const people = useGet("/api/projects/{project_id}/persons/", where("person:read"), wanted)
  const found = exactFirst(text, [
    ...matching(PAGES(project), text),
    ...(experiments.value?.results ?? []).map((each) => ({ text: each.name, kind: "Experiment", to: pathOf("p", project, "experiments", each.id) })),
    ...(flags.value?.results ?? []).map((each) => ({ text: each.key, kind: "Flag", to: pathOf("p", project, "flags", each.id) })),
    ...(functions.value?.results ?? []).map((each) => ({ text: each.name ?? "", kind: "Function", to: pathOf("p", project, "functions", each.id) })),
    ...(people.value?.results ?? []).map((each) => ({ text: each.name, kind: "Person", to: pathOf("p", project, "person", each.uuid) })),
  ])
  const chosen = Math.min(at, found.length - 1)
  const follow = (command: Command | undefined) => {
    if (!command) return
    onClose()
    go(command.to)
  }
  const press = (event: KeyboardEvent) => {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key]
    if (event.key === "Enter") follow(found[chosen])
    else if (move) setAt(Math.max(0, Math.min(found.length - 1, chosen + move)))
    else return
    event.preventDefault()
  }
  return (
    <Dialog title="Go to" class="palette" onClose={onClose}>
      <input
        type="text"
        role="combobox"
        aria-label="Search pages, experiments, flags, functions and people"
        aria-expanded="true"
        aria-controls={id}
        aria-activedescendant={chosen >= 0 ? `${id}-${chosen}` : undefined}
        autofocus
        autocomplete="off"
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value)
          setAt(0)
        }}
        onKeyDown={press}
      />
      <ul role="listbox" id={id} aria-label="Found">
        {found.map((command, place) => (
          <li key={`${command.kind} ${command.to}`} role="option" id={`${id}-${place}`} aria-selected={place === chosen} onClick={() => follow(command)}>
            <bdi>{clipped(command.text, 80)}</bdi> <span class="quiet">{command.kind}</span>
          </li>
        ))}
      </ul>
      {found.length === 0 && <p class="quiet">No results.</p>}
    </Dialog>
  )
}

function Help({ onClose }: { onClose: () => void }) {
  const [on, setOn] = useState(preference("shortcuts") !== "off")
  const id = useId()
  const change = (wanted: boolean) => {
    prefer("shortcuts", wanted ? null : "off")
    setOn(wanted)
  }
  return (
    <Dialog title="Shortcuts" onClose={onClose}>
      <dl class="shortcuts">
        {SHORTCUTS.map(([keys, text]) => (
          <div key={keys}>
            <dt>
              <kbd>{keys}</kbd>
            </dt>
            <dd>{text}</dd>
          </div>
        ))}
      </dl>
      <p>
        <input id={id} type="checkbox" checked={on} onChange={(event) => change(event.currentTarget.checked)} /> <label for={id}>Use single-key shortcuts</label>
      </p>
    </Dialog>
  )
}
