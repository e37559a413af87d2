// What a page keeps of a stream of live events.

import type { Message } from "../api/stream"
import type { Event } from "./model"

export const MOST = 500

export interface Warning {
  type: string
  details: Record<string, unknown>
  timestamp: string
}

export interface Live {
  events: Event[]
  warnings: Warning[]
  skipped: number
  rate: { received_per_s: number; shown_per_s: number; last_event_at: string | null } | null
}

export const NOTHING: Live = { events: [], warnings: [], skipped: 0, rate: null }

/** The newest events first, each once, at most `MOST`. */
export function taken(live: Live, messages: readonly Message[]): Live {
  const next = { ...live }
  const fresh: Event[] = []
  for (const { kind, data } of messages) {
    if (kind === "event") fresh.push(data as Event)
    else if (kind === "skipped") next.skipped += Number((data as { count?: number }).count ?? 0)
    else if (kind === "rate") next.rate = data as Live["rate"]
    else if (kind === "warning") next.warnings = [data as Warning, ...next.warnings].slice(0, 20)
  }
  if (fresh.length > 0) {
    const seen = new Set<string>()
    next.events = [...fresh.reverse(), ...live.events].filter(({ uuid }) => !seen.has(uuid) && seen.add(uuid)).slice(0, MOST)
  }
  return next
}

export interface Paused {
  live: Live
  /** The newest events that came during the pause. */
  meanwhile: readonly Message[]
}

/** What a paused page keeps: events wait, everything else shows itself at once. */
export function held({ live, meanwhile }: Paused, messages: readonly Message[]): Paused {
  const isEvent = (message: Message) => message.kind === "event"
  return { live: taken(live, messages.filter((message) => !isEvent(message))), meanwhile: [...meanwhile, ...messages.filter(isEvent)].slice(-MOST) }
}
