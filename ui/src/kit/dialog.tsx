// Dialogs on the platform's own element, which keeps the focus inside and gives it back.

import type { ComponentChildren } from "preact"
import { useEffect, useId, useRef, useState } from "preact/hooks"
import { WORDS } from "../lib/words"
import { Button } from "./basics"
import { told } from "./states"

interface DialogProps {
  title: string
  onClose: () => void
  children: ComponentChildren
  class?: string
}

export function Dialog({ title, onClose, children, class: name = "" }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null)
  const id = useId()
  useEffect(() => {
    const before = document.activeElement
    const dialog = element.current
    dialog?.showModal()
    return () => {
      dialog?.close()
      if (before instanceof HTMLElement && before.isConnected) before.focus()
    }
  }, [])
  const cancel = (event: Event) => {
    event.preventDefault()
    onClose()
  }
  const outside = (event: MouseEvent) => {
    if (event.target === element.current) onClose()
  }
  return (
    <dialog ref={element} class={name} aria-labelledby={id} onCancel={cancel} onMouseDown={outside}>
      <div class="dialog-content">
        <h2 id={id}>{title}</h2>
        {children}
      </div>
    </dialog>
  )
}

interface ConfirmProps {
  title: string
  verb: string
  danger?: boolean
  /** What has to be typed before something that cannot be undone. */
  typed?: string | undefined
  /** Whether everything is chosen that has to be. */
  ready?: boolean
  children: ComponentChildren
  act: () => Promise<unknown>
  onClose: () => void
}

/** Asks before something happens; the default is that it does not. */
export function Confirm({ title, verb, danger, typed, ready = true, children, act, onClose }: ConfirmProps) {
  const [busy, setBusy] = useState(false)
  const [fault, setFault] = useState<string | null>(null)
  const [text, setText] = useState("")
  const id = useId()
  const go = async () => {
    setBusy(true)
    setFault(null)
    try {
      await act()
      onClose()
    } catch (error) {
      setFault(told(error).detail)
      setBusy(false)
    }
  }
  return (
    <Dialog title={title} onClose={onClose}>
      {children}
      {typed !== undefined && (
        <p class="field">
          <label for={id}>
            Type <code>{typed}</code> to go on
          </label>
          <input id={id} value={text} autocomplete="off" onInput={(event) => setText(event.currentTarget.value)} />
        </p>
      )}
      {fault && (
        <p role="alert" class="fault">
          {fault}
        </p>
      )}
      <div class="buttons">
        <Button onClick={onClose}>{WORDS.cancel}</Button>
        <Button kind={danger ? "danger" : "primary"} disabled={busy || !ready || (typed !== undefined && text !== typed)} onClick={() => void go()}>
          {verb}
        </Button>
      </div>
    </Dialog>
  )
}
