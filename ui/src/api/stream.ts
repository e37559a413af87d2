// Server-sent events: what comes is gathered and handed on a few times a second, so that a flood does not freeze the page.

import { useEffect, useRef, useState } from "preact/hooks"
import { note } from "./client"

const EVERY_MS = 250

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
    const source = new EventSource(url, { withCredentials: true })
    const flush = () => {
      if (waiting.length === 0) return
      const taken = waiting
      waiting = []
      latest.current(taken)
    }
    for (const kind of kinds)
      source.addEventListener(kind, (event: MessageEvent<string>) => {
        try {
          waiting.push({ kind, data: JSON.parse(event.data), id: event.lastEventId })
        } catch {
          // A line that is no JSON says nothing.
        }
      })
    source.addEventListener("open", () => {
      setConnected(true)
      note({ offline: false })
    })
    source.addEventListener("error", () => setConnected(false))
    const timer = setInterval(flush, EVERY_MS)
    return () => {
      clearInterval(timer)
      source.close()
      setConnected(false)
    }
  }, [url])
  return { connected }
}
