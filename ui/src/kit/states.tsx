// What a part of a page shows while it has nothing to show: empty, loading, failed.

import type { ComponentChildren } from "preact"
import type { Cached } from "../api/queryCache"
import { visible } from "../lib/format"
import { WORDS } from "../lib/words"
import { Button, Copy, Theirs } from "./basics"
import { useAfter } from "./hooks"

export function Empty({ title, children, curl }: { title: string; children?: ComponentChildren; curl?: string }) {
  return (
    <div class="empty">
      <h2>{title}</h2>
      {children}
      {curl && (
        <div class="code">
          <pre tabindex={0}>{curl}</pre>
          <Copy text={curl} />
        </div>
      )}
    </div>
  )
}

/** In the place of what the session may not see. */
export function Lacking({ scope }: { scope: string }) {
  return (
    <div class="empty">
      <h1>You may not see this</h1>
      <p>{WORDS.needsScope(scope)} Log in with a key that has this scope, or with a link of <code>hoglab login</code>.</p>
    </div>
  )
}

/** Nothing at first, then rows where the content will be, and after a while a word. */
export function Skeleton({ rows = 4 }: { rows?: number }) {
  const begun = useAfter(150)
  const slow = useAfter(5000)
  return (
    <div class="skeleton" role="status" aria-label={WORDS.loading}>
      {begun && Array.from({ length: rows }, (_, at) => <div key={at} class="bone" />)}
      {slow && <p class="quiet">{WORDS.slow}</p>}
    </div>
  )
}

interface Told {
  detail: string
  requestId: string | null
  status: number
}

/** What failed in the server's words, which may repeat what somebody else wrote. */
export function told(error: unknown): Told {
  const found = error as Partial<Told> & { message?: string }
  return { detail: visible(found?.detail ?? found?.message ?? String(error)), requestId: found?.requestId ?? null, status: found?.status ?? 0 }
}

export function Failure({ error, refetch, what = WORDS.failed }: { error: unknown; refetch?: () => void; what?: string }) {
  const { detail, requestId, status } = told(error)
  if (status === 404)
    return (
      <div class="empty" role="alert">
        <h1>{WORDS.gone}</h1>
        <p>It may have been deleted, or it belongs to another project. Check the address, or search with Ctrl K.</p>
      </div>
    )
  return (
    <div class="failure" role="alert">
      <p>
        <strong>{what}.</strong> <Theirs text={detail} />
      </p>
      {requestId && (
        <p class="quiet">
          {WORDS.requestId} <code>{requestId.slice(0, 64)}</code> <Copy text={requestId} label="request id" />
        </p>
      )}
      {refetch && <Button onClick={refetch}>{WORDS.again}</Button>}
    </div>
  )
}

interface LoadedProps<T> {
  answer: Cached<T>
  children: (value: T) => ComponentChildren
  rows?: number
}

/** The content of an answer, or what is to be seen in its place; an old answer stays when a new one fails. */
export function Loaded<T>({ answer, children, rows }: LoadedProps<T>) {
  return (
    <>
      {answer.error !== undefined && !(answer.value !== undefined && (answer.error as Error).name === "OfflineError") && (
        <Failure error={answer.error} refetch={answer.refetch} />
      )}
      {answer.value !== undefined ? children(answer.value) : answer.error === undefined && <Skeleton rows={rows ?? 4} />}
    </>
  )
}
