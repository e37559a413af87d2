// Buttons, links, badges, texts of others, moments.

import type { ComponentChildren } from "preact"
import { useEffect, useRef, useState } from "preact/hooks"
import { colourOf } from "../lib/colours"
import { clipped, MAX_SHOWN, visible } from "../lib/format"
import { go, href } from "../lib/router"
import { absolute, ago } from "../lib/time"
import { WORDS } from "../lib/words"
import { useNow } from "./hooks"

interface ButtonProps {
  onClick?: () => void
  children: ComponentChildren
  kind?: "primary" | "plain" | "quiet" | "danger"
  type?: "button" | "submit"
  disabled?: boolean
  /** The scope that the session lacks; the button is then disabled and says so. */
  lacks?: string | null
  label?: string
  pressed?: boolean
}

export function Button({ onClick, children, kind = "plain", type = "button", disabled, lacks, label, pressed }: ButtonProps) {
  const why = lacks ? WORDS.needsScope(lacks) : undefined
  return (
    <button
      type={type}
      class={`button ${kind}`}
      onClick={why ? undefined : onClick}
      disabled={disabled}
      aria-disabled={why ? true : undefined}
      aria-label={label}
      aria-pressed={pressed}
      title={why}
    >
      {children}
      {why && <span class="unseen"> ({why})</span>}
    </button>
  )
}

interface LinkProps {
  to: string
  query?: URLSearchParams
  children: ComponentChildren
  class?: string
  current?: boolean
  /** One of a list, to which the keys j and k go. */
  row?: boolean
}

/** A link inside of the application; with a modifier key it is the browser's. */
export function Link({ to, query, children, class: name, current, row }: LinkProps) {
  const follow = (event: MouseEvent) => {
    if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return
    event.preventDefault()
    go(to, query)
  }
  return (
    <a href={href(to, query)} class={name} onClick={follow} aria-current={current ? "page" : undefined} data-row={row}>
      {children}
    </a>
  )
}

interface MenuProps {
  label: string
  children: ComponentChildren
}

/** Further buttons behind one; Escape, a click elsewhere and a choice close it. */
export function Menu({ label, children }: MenuProps) {
  const element = useRef<HTMLDetailsElement>(null)
  useEffect(() => {
    const close = (event: Event) => {
      const menu = element.current
      if (!menu?.open || (event instanceof KeyboardEvent ? event.key !== "Escape" : event.target instanceof Node && menu.querySelector("summary")?.contains(event.target))) return
      if (event.type === "mousedown" && event.target instanceof Node && menu.contains(event.target)) return
      menu.open = false
      if (event instanceof KeyboardEvent) menu.querySelector("summary")?.focus()
    }
    for (const kind of ["keydown", "mousedown", "click"]) document.addEventListener(kind, close)
    return () => {
      for (const kind of ["keydown", "mousedown", "click"]) document.removeEventListener(kind, close)
    }
  }, [])
  return (
    <details class="menu" ref={element}>
      <summary class="button">
        {label} <span aria-hidden="true">▾</span>
      </summary>
      <div class="menu-items">{children}</div>
    </details>
  )
}

export function Badge({ children, kind = "" }: { children: ComponentChildren; kind?: string }) {
  return <span class={`badge ${kind}`}>{children}</span>
}

/** A text that somebody else wrote: as text, without invisible characters, long ones cut. */
export function Theirs({ text, most = MAX_SHOWN }: { text: string; most?: number }) {
  const [all, setAll] = useState(false)
  const long = text.length > most
  return (
    <span class="theirs" dir="auto">
      {all ? visible(text) : clipped(text, most)}
      {long && (
        <>
          {" "}
          <button type="button" class="inline" onClick={() => setAll(!all)}>
            {all ? WORDS.showLess : WORDS.showAll}
          </button>
        </>
      )}
    </span>
  )
}

/** A name of somebody else's in a place for short ones. */
export function Name({ text }: { text: string }) {
  return (
    <bdi class="name" title={text.length > 80 ? clipped(text, 500) : undefined}>
      {clipped(text, 80)}
    </bdi>
  )
}

export function When({ at, zone, precise }: { at: string | null | undefined; zone: string; precise?: boolean }) {
  const now = useNow(30_000)
  if (!at) return <span class="quiet">–</span>
  const moment = new Date(at)
  const full = `${absolute(moment, zone, precise)} ${zone}`
  return (
    <time dateTime={at} title={full}>
      {precise ? absolute(moment, zone, true) : ago(moment, now)}
    </time>
  )
}

export function Copy({ text, label = WORDS.copy }: { text: string; label?: string }) {
  const [copied, setCopied] = useState(false)
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined)
  const copy = async () => {
    await navigator.clipboard.writeText(text)
    setCopied(true)
    clearTimeout(timer.current)
    timer.current = setTimeout(() => setCopied(false), 2000)
  }
  return (
    <span class="copy">
      <Button kind="quiet" label={copied || label === WORDS.copy ? undefined : `${WORDS.copy} ${label}`} onClick={() => void copy()}>
        {copied ? WORDS.copied : WORDS.copy}
      </Button>
      <span class="unseen" role="status">
        {copied ? WORDS.copied : ""}
      </span>
    </span>
  )
}

/** A dot in the colour of a variant, by its place among them; those for whom no colour of their own is left have a number, too. */
export function Dot({ place }: { place: number }) {
  const numbered = place > 5
  const width = !numbered ? 10 : place > 9 ? 24 : 16
  return (
    <svg class={`dot variant-${colourOf(place)}`} width={width} height={numbered ? 16 : 10} aria-hidden="true">
      {numbered ? (
        <>
          <rect width={width} height="16" rx="8" />
          <text x={width / 2} y="12.5" text-anchor="middle">
            {place}
          </text>
        </>
      ) : (
        <circle cx="5" cy="5" r="4.5" />
      )}
    </svg>
  )
}
