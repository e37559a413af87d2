// Server-sent events: what comes is gathered and handed on a few times a second, so that a flood does not freeze the page.

import { useEffect, useRef, useState } from "preact/hooks"
import { address, type Answer, note, send } from "./client"

const EVERY_MS = 250
const AGAIN_MS = 3000
const LATEST_AGAIN_MS = 60_000

export interface Message {
  kind: string
  data: unknown
  id: string
}

export interface Stream {
  connected: boolean
}

/** Follow an address (null: none); `take` gets what has come since, at most a few times a second. */
export function useStream(url: string | null, kinds: readonly string[], take: (messages: Message[]) => void): Stream {
  const [connected, setConnected] = useState(false)
  const latest = useRef(take)
  latest.current = take
  useEffect(() => {
    if (url === null) return undefined
    let waiting: Message[] = []
    let source: EventSource | null = null
    let again: ReturnType<typeof setTimeout> | undefined
    let pause = AGAIN_MS
    const flush = () => {
      if (waiting.length === 0) return
      const taken = waiting
      waiting = []
      latest.current(taken)
    }
    const open = () => {
      source = new EventSource(url, { withCredentials: true })
      for (const kind of kinds)
        source.addEventListener(kind, (event: MessageEvent<string>) => {
          try {
            waiting.push({ kind, data: JSON.parse(event.data), id: event.lastEventId })
          } catch {
            // A line that is no JSON says nothing.
          }
        })
      source.addEventListener("open", () => {
        pause = AGAIN_MS
        setConnected(true)
        note({ offline: false })
      })
      source.addEventListener("error", lost)
    }
    // The browser itself connects again after a broken line; after an answer that is none it gives up.
    const lost = () => {
      setConnected(false)
      if (source?.readyState !== EventSource.CLOSED) return
      again = setTimeout(() => void reopen(), pause)
      pause = Math.min(2 * pause, LATEST_AGAIN_MS)
    }
    const reopen = async () => {
      const session = await send<Answer<"/api/session/", "get">>("GET", address("/api/session/")).catch(() => null)
      if (source === null) return
      if (session !== null && session.id === null) note({ loggedOut: true })
      else open()
    }
    open()
    const timer = setInterval(flush, EVERY_MS)
    return () => {
      clearInterval(timer)
      clearTimeout(again)
      source?.close()
      source = null
      setConnected(false)
    }
  }, [url])
  return { connected }
}
