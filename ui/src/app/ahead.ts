// What a page will need is asked for at its start, at once: one after the other, each would cost a way to the server.

import { ahead } from "../api/queryCache"
import { begin, type Session, wasLoggedIn } from "../api/session"
import { place } from "../lib/router"
import { hasToken } from "./Login"
import { find } from "./routes"

/**
 * Ask who is logged in and, where somebody was when this browser looked last, for the screen of the address and its data.
 *
 * Without that nothing would be answered. A one-time link opens a session of its own, whoever was there before.
 */
export function start(): Promise<Session | null> {
  if (hasToken()) return Promise.resolve(null)
  const session = begin()
  const found = wasLoggedIn() ? find(place()) : null
  if (found) {
    // Whoever shows the screen tells of what failed.
    found.route.load().catch(() => undefined)
    ahead(found.route.asks?.(found.parts) ?? [])
  }
  return session
}
