// Short messages that come after an action and go by themselves.

import { useEffect, useState } from "preact/hooks"

const SHOWN_MS = 6000
let messages: { id: number; text: string }[] = []
let last = 0
const listeners = new Set<() => void>()

function change(next: typeof messages): void {
  messages = next
  for (const listener of [...listeners]) listener()
}

export function toast(text: string): void {
  const id = ++last
  change([...messages.slice(-3), { id, text }])
  setTimeout(() => change(messages.filter((each) => each.id !== id)), SHOWN_MS)
}

export function Toasts() {
  const [shown, setShown] = useState(messages)
  useEffect(() => {
    const listener = () => setShown(messages)
    listeners.add(listener)
    return () => {
      listeners.delete(listener)
    }
  }, [])
  return (
    <div class="toasts" role="status">
      {shown.map(({ id, text }) => (
        <p key={id}>{text}</p>
      ))}
    </div>
  )
}
