// Who is logged in, and what they may do. The credential itself is a cookie that scripts cannot read.

import { useReducer, useEffect } from "preact/hooks"
import { dropDrafts } from "../lib/drafts"
import { prefer, preference } from "../lib/storage"
import { address, type Answer, note, send } from "./client"

export type Session = Answer<"/api/session/", "post">

let current: Session | null = null
const listeners = new Set<() => void>()

function set(session: Session | null): void {
  current = session
  prefer("known", session && "yes")
  for (const listener of [...listeners]) listener()
}

/** The session of this browser; null: nobody is logged in. */
export async function begin(): Promise<Session | null> {
  const { id, user, expires_at: end, scopes } = await send<Answer<"/api/session/", "get">>("GET", address("/api/session/"))
  set(id !== null && user !== null && end !== null ? { id, user, expires_at: end, scopes } : null)
  return current
}

/** Whether somebody was logged in when this browser looked last; whoever has the cookie, scripts cannot tell. */
export function wasLoggedIn(): boolean {
  return preference("known") !== null
}

export async function logIn(proof: { token: string } | { personal_api_key: string }): Promise<void> {
  const session = await send<Session>("POST", address("/api/session/"), proof)
  note({ loggedOut: false })
  set(session)
}

export async function logOut(): Promise<void> {
  await send("DELETE", address("/api/session/"))
  dropDrafts()
  set(null)
}

export function useSession(): Session | null {
  const [, render] = useReducer((count: number) => count + 1, 0)
  useEffect(() => {
    const listener = () => render(undefined)
    listeners.add(listener)
    return () => {
      listeners.delete(listener)
    }
  }, [])
  return current
}

/** Which scope is missing for something, or null; `write` holds `read`. */
export function missingScope(scopes: readonly string[], wanted: string): string | null {
  const [object, action] = wanted.split(":")
  const held = scopes.includes("*") || scopes.includes(wanted) || (action === "read" && scopes.includes(`${object}:write`))
  return held ? null : wanted
}

/** As `missingScope`, of who is logged in now. */
export function lacks(wanted: string): string | null {
  return missingScope(current?.scopes ?? [], wanted)
}
