// Addresses below the base of the document: the pure part, and the one place that changes the browser's.

export interface Place {
  path: string
  query: URLSearchParams
}

/** What a pattern such as `/p/:project/events/:id` finds in a path, a `*` at the end taking the rest; null: no match. */
export function match(pattern: string, path: string): Record<string, string> | null {
  const wanted = pattern.split("/").filter(Boolean)
  const given = path.split("/").filter(Boolean)
  const found: Record<string, string> = {}
  for (const [at, part] of wanted.entries()) {
    if (part === "*") return found
    const value = given[at]
    if (value === undefined) return null
    if (part.startsWith(":")) {
      const decoded = decode(value)
      if (decoded === null) return null
      found[part.slice(1)] = decoded
    } else if (part !== value) return null
  }
  return given.length === wanted.length ? found : null
}

function decode(part: string): string | null {
  try {
    return decodeURIComponent(part)
  } catch {
    return null
  }
}

/** A path with its parts encoded. */
export function pathOf(...parts: (string | number)[]): string {
  return `/${parts.map((part) => encodeURIComponent(part)).join("/")}`
}

/** The same query with some values changed; empty ones are left out. */
export function withQuery(query: URLSearchParams, changes: Record<string, string | null>): URLSearchParams {
  const changed = new URLSearchParams(query)
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === "") changed.delete(name)
    else changed.set(name, value)
  }
  return changed
}

export function base(): string {
  return new URL(document.baseURI).pathname.replace(/\/$/, "")
}

export function place(): Place {
  const { pathname, search } = window.location
  const root = base()
  const path = pathname.startsWith(root) ? pathname.slice(root.length) : pathname
  return { path: path || "/", query: new URLSearchParams(search) }
}

type Listener = () => void
const listeners = new Set<Listener>()

/** Be told whenever the address has changed; returns how to stop that. */
export function onMove(listener: Listener): () => void {
  listeners.add(listener)
  if (listeners.size === 1) window.addEventListener("popstate", moved)
  return () => {
    listeners.delete(listener)
  }
}

function moved(): void {
  for (const listener of [...listeners]) listener()
}

export function href(path: string, query?: URLSearchParams): string {
  const text = query?.toString() ?? ""
  return `${base()}${path}${text && `?${text}`}`
}

/** Go to a path below the base. `replace`: without a step in the history. */
export function go(path: string, query?: URLSearchParams, { replace = false } = {}): void {
  const address = href(path, query)
  if (replace) window.history.replaceState(null, "", address)
  else window.history.pushState(null, "", address)
  moved()
  if (!replace) window.scrollTo(0, 0)
}

/** Change only the query of the address. */
export function ask(changes: Record<string, string | null>, { replace = true } = {}): void {
  const { path, query } = place()
  const address = href(path, withQuery(query, changes))
  if (replace) window.history.replaceState(null, "", address)
  else window.history.pushState(null, "", address)
  moved()
}
