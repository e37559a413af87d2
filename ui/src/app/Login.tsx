// Logging in: with the token of a one-time link, which leaves the address at once, or with a pasted key.

import { useEffect, useRef, useState } from "preact/hooks"
import { ApiError } from "../api/client"
import { logIn, type Session } from "../api/session"
import { Button } from "../kit/basics"
import { Field } from "../kit/forms"
import { useTitle } from "../kit/hooks"
import { told } from "../kit/states"

function tokenInAddress(): string | null {
  return new URLSearchParams(window.location.hash.slice(1)).get("t")
}

export function hasToken(): boolean {
  return tokenInAddress() !== null
}

/** The token in the address, which is taken out of it and out of the history. */
export function takeToken(): string | null {
  const token = tokenInAddress()
  if (token !== null) window.history.replaceState(null, "", window.location.pathname + window.location.search)
  return token
}

export function Login({ session, back }: { session: Session | null; back: string }) {
  const [token] = useState(takeToken)
  const [busy, setBusy] = useState(token !== null)
  const [used, setUsed] = useState(false)
  const [fault, setFault] = useState<string | null>(null)
  const field = useRef<HTMLInputElement>(null)
  useTitle("Log in")
  const leave = () => window.location.replace(back)
  useEffect(() => {
    if (token === null) {
      if (session !== null) leave()
      return
    }
    logIn({ token }).then(leave, (error: unknown) => {
      setBusy(false)
      if (error instanceof ApiError && error.status < 429) setUsed(true)
      else setFault(told(error).detail)
    })
  }, [])
  const submit = async (event: Event) => {
    event.preventDefault()
    const key = field.current?.value.trim() ?? ""
    if (!key) return
    setBusy(true)
    setFault(null)
    try {
      await logIn({ personal_api_key: key })
      leave()
    } catch (error) {
      setBusy(false)
      setFault(error instanceof ApiError && error.status < 429 ? "This key cannot open a session: it is wrong, has expired, or was revoked. Check it, or use another key." : told(error).detail)
    } finally {
      if (field.current) field.current.value = ""
    }
  }
  return (
    <main class="login">
      <h1>hoglab</h1>
      {used && (
        <div class="caution" role="alert">
          <p>
            <strong>This link was already used, or is older than 15 minutes.</strong>
          </p>
          <p>
            Get a new one: run <code>hoglab login</code> on the server's machine, in the directory in which the server was started.
          </p>
        </div>
      )}
      {busy && token !== null ? (
        <p role="status">Logging in …</p>
      ) : (
        <>
          <p>
            Open the link that <code>hoglab serve</code> printed, or get a new one with <code>hoglab login</code> beside the running server. You can also use a personal API key:
          </p>
          <form onSubmit={(event) => void submit(event)} class="card">
            <Field label="Personal API key" error={fault} hint="It is sent once and not stored in this browser. The session has its rights.">
              {(given) => <input {...given} ref={field} type="password" autocomplete="off" spellcheck={false} placeholder="phx_…" required />}
            </Field>
            <Button kind="primary" type="submit" disabled={busy}>
              Log in
            </Button>
          </form>
        </>
      )}
    </main>
  )
}
