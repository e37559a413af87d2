// Answers by address: asked for once, shared, refreshed when they are old or after a change.

import { useEffect, useReducer } from "preact/hooks"
import { type Answer, address, type Parts, type PathOf, type Query, send } from "./client"

export const FRESH_MS = 30_000
const MOST = 200

interface Entry {
  value?: unknown
  error?: unknown
  at: number
  pending: AbortController | null
  readonly watchers: Set<() => void>
}

export interface Cached<T> {
  value: T | undefined
  error: unknown
  /** When the value came, in milliseconds; 0: never. */
  at: number
  loading: boolean
  refetch: () => void
}

const entries = new Map<string, Entry>()

function entryOf(key: string): Entry {
  let entry = entries.get(key)
  if (!entry) {
    entry = { at: 0, pending: null, watchers: new Set() }
    entries.set(key, entry)
    for (const [old, stored] of entries) if (entries.size > MOST && stored.watchers.size === 0 && old !== key) entries.delete(old)
  }
  return entry
}

function notify(entry: Entry): void {
  for (const watcher of [...entry.watchers]) watcher()
}

function load(key: string, entry: Entry): void {
  if (entry.pending) return
  const abort = new AbortController()
  entry.pending = abort
  notify(entry)
  send<unknown>("GET", key, undefined, abort.signal)
    .then(
      (value) => {
        if (entry.pending === abort) Object.assign(entry, { value, error: undefined, at: Date.now() })
      },
      (error: unknown) => {
        if (entry.pending === abort) entry.error = error
      },
    )
    .finally(() => {
      if (entry.pending !== abort) return
      entry.pending = null
      notify(entry)
    })
}

/** Ask for what a screen is going to want before it is there. */
export function ahead(keys: readonly string[]): void {
  for (const key of keys) load(key, entryOf(key))
}

/** Ask again for everything whose address holds this text and that somebody sees; drop the rest. */
export function invalidate(part: string): void {
  for (const [key, entry] of [...entries]) {
    if (!key.includes(part)) continue
    entry.pending?.abort()
    entry.pending = null
    if (entry.watchers.size === 0) entries.delete(key)
    else load(key, entry)
  }
}

/** Ask again for what failed, after the server has come back. */
export function retryFailed(): void {
  for (const [key, entry] of entries) if (entry.error !== undefined && entry.watchers.size > 0) load(key, entry)
}

const NOTHING: Cached<never> = { value: undefined, error: undefined, at: 0, loading: false, refetch: () => undefined }

/** The answers at addresses; `everyMs`: asked for as often as that while somebody looks. */
export function useAddresses<T>(keys: readonly string[], everyMs?: number): Cached<T>[] {
  const [, render] = useReducer((count: number) => count + 1, 0)
  useEffect(() => {
    const watched = keys.map((key) => [key, entryOf(key)] as const)
    const watcher = () => render(undefined)
    for (const [key, entry] of watched) {
      entry.watchers.add(watcher)
      if (entry.error !== undefined || Date.now() - entry.at > Math.min(FRESH_MS, everyMs ?? FRESH_MS)) load(key, entry)
      else watcher()
    }
    const timer = everyMs === undefined ? undefined : setInterval(() => document.hidden || watched.forEach(([key, entry]) => load(key, entry)), everyMs)
    return () => {
      clearInterval(timer)
      for (const [, entry] of watched) {
        entry.watchers.delete(watcher)
        if (entry.watchers.size === 0 && entry.pending) {
          entry.pending.abort()
          entry.pending = null
        }
      }
    }
  }, [keys.join(" "), everyMs])
  return keys.map((key) => {
    const entry = entries.get(key)
    return {
      value: entry?.value as T | undefined,
      error: entry?.error,
      at: entry?.at ?? 0,
      loading: entry === undefined || entry.pending !== null || (entry.at === 0 && entry.error === undefined),
      refetch: () => load(key, entryOf(key)),
    }
  })
}

/** As `useAddresses`, for one address; null: none is wanted. */
export function useAddress<T>(key: string | null, everyMs?: number): Cached<T> {
  return useAddresses<T>(key === null ? [] : [key], everyMs)[0] ?? NOTHING
}

/** As `useAddress`, for an operation of the API; null as parts: nothing is wanted yet. */
export function useGet<P extends PathOf<"get">>(path: P, parts: Parts<P> | null, query?: Query, everyMs?: number): Cached<Answer<P, "get">> {
  return useAddress<Answer<P, "get">>(parts === null ? null : address(path, parts, query), everyMs)
}
