// Whether a function does what it should, from its health of the last 24 hours.

import type { Schemas } from "../api/client"
import { counted } from "../lib/format"

export type FunctionHealth = Schemas["FunctionHealthOut"]

export interface FunctionState {
  kind: "good" | "warning" | ""
  word: string
  /** What is wrong, in a sentence; null: nothing. */
  why: string | null
}

const SLOWED: ReadonlySet<number> = new Set([2, 11])
const STOPPED: ReadonlySet<number> = new Set([3, 12])

/** The state of a function: green only where nothing failed. `state`: of the breaker; null while it is not known. */
export function stateOf(enabled: boolean, state: number | null, health: FunctionHealth | null): FunctionState {
  if (!enabled) return { kind: "", word: "off", why: null }
  if (state !== null && STOPPED.has(state)) return { kind: "warning", word: "stopped", why: "The server has stopped it, as it computed for too long: nothing is delivered." }
  if (health?.destination_away) return { kind: "warning", word: "failing", why: "Its destination does not answer. Its runs wait and are tried again." }
  if (health && health.failed > 0)
    return health.succeeded === 0
      ? { kind: "warning", word: "failing", why: `${counted(health.failed, "run")} failed in the last 24 hours, and none succeeded.` }
      : { kind: "warning", word: "on, some runs fail", why: `${counted(health.failed, "run")} of ${counted(health.failed + health.succeeded, "run")} failed in the last 24 hours.` }
  if (health && health.last_error && health.unfinished > 0 && health.succeeded === 0)
    return { kind: "warning", word: "failing", why: `${counted(health.unfinished, "run")} wait for another attempt after an error, and none succeeded in the last 24 hours.` }
  if (state !== null && SLOWED.has(state)) return { kind: "warning", word: "slowed down", why: "It computes for long, so its runs get less of the server's time." }
  return { kind: "good", word: "on", why: null }
}

const COUNTS: Record<string, string> = {
  triggered: "Runs started",
  succeeded: "Runs succeeded",
  failed: "Runs failed",
  fetch: "Requests",
  filtered: "Events not matched",
  masked: "Repeats left out",
  dropped: "Events dropped",
  inputs_failed: "Inputs failed",
  filtering_failed: "Filters failed",
  queue_full: "Runs refused, queue full",
  disabled_permanently: "Not run, function stopped",
  disabled_temporarily: "Not run, function slowed down",
  email_sent: "E-mails sent",
  email_failed: "E-mails failed",
}

/** What a metric of a function counts, in words. */
export function countName(name: string): string {
  return COUNTS[name] ?? name.replaceAll("_", " ")
}
