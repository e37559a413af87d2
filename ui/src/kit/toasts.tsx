// Short messages that come after an action and go by themselves.

import { useEffect, useState } from "preact/hooks"

const SHOWN_MS = 6000
const WITH_ACTION_MS = 30_000

/** What can be done about a message, such as to undo what it reports. */
interface Action {
  label: string
  act: () => void
}

let messages: { id: number; text: string; action: Action | undefined }[] = []
let last = 0
const listeners = new Set<() => void>()

function change(next: typeof messages): void {
  messages = next
  for (const listener of [...listeners]) listener()
}

export function toast(text: string, action?: Action): void {
  const id = ++last
  change([...messages.slice(-3), { id, text, action }])
  setTimeout(() => dismiss(id), action ? WITH_ACTION_MS : SHOWN_MS)
}

function dismiss(id: number): void {
  change(messages.filter((each) => each.id !== id))
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
      {shown.map(({ id, text, action }) => (
        <p key={id}>
          {text}
          {action && (
            <button
              type="button"
              class="inline"
              onClick={() => {
                dismiss(id)
                action.act()
              }}
            >
              {action.label}
            </button>
          )}
        </p>
      ))}
    </div>
  )
}
