// Requests to the API: typed by its own document, sent with the session's cookie, and with one class of errors.

import { base } from "../lib/router"
import type { components, paths } from "./schema"

export type Schemas = components["schemas"]
type Method = "get" | "post" | "patch" | "delete"
type Operation<P extends keyof paths, M extends Method> = paths[P] extends Record<M, infer O> ? O : never
export type PathOf<M extends Method> = { [P in keyof paths]: paths[P] extends Record<M, { responses: unknown }> ? P : never }[keyof paths]
type Json<R> = R extends { content: { "application/json": infer B } } ? B : undefined
type Good<R> = R extends { 200: infer A } ? Json<A> : R extends { 201: infer A } ? Json<A> : undefined
export type Answer<P extends keyof paths, M extends Method> = Operation<P, M> extends { responses: infer R } ? Good<R> : never
type Names<P extends string> = P extends `${string}{${infer N}}${infer Rest}` ? N | Names<Rest> : never
export type Parts<P extends string> = Record<Names<P>, string | number>
export type Query = Record<string, string | number | boolean | null | undefined>

export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly detail: string,
    readonly code: string,
    readonly attr: string | null,
    readonly requestId: string | null,
  ) {
    super(detail)
  }
}

/** The server could not be reached. */
export class OfflineError extends Error {}

type Notice = { offline: boolean; otherVersion: boolean; loggedOut: boolean }
const state: Notice = { offline: false, otherVersion: false, loggedOut: false }
const listeners = new Set<() => void>()

/** What the page has to say of its server: that it is away, was updated, or has ended the session. */
export function notice(): Readonly<Notice> {
  return state
}

export function onNotice(listener: () => void): () => void {
  listeners.add(listener)
  return () => {
    listeners.delete(listener)
  }
}

export function note(changes: Partial<Notice>): void {
  const before = JSON.stringify(state)
  Object.assign(state, changes)
  if (before !== JSON.stringify(state)) for (const listener of [...listeners]) listener()
}

export function address(path: string, parts: Record<string, string | number> = {}, query: Query = {}): string {
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(parts[name] ?? "")))
  const search = new URLSearchParams()
  for (const [name, value] of Object.entries(query))
    if (value !== undefined && value !== null && value !== "") search.set(name, String(value))
  const text = search.toString()
  return `${root()}${filled}${text && `?${text}`}`
}

/** The path of the server, which a proxy may have put below another. */
function root(): string {
  return base().replace(/\/ui$/, "")
}

export async function send<T>(method: string, url: string, body?: unknown, signal?: AbortSignal, headers: Record<string, string> = {}): Promise<T> {
  const init: RequestInit = { method, credentials: "same-origin", redirect: "error", cache: "no-cache", headers: { Accept: "application/json", ...headers } }
  if (signal) init.signal = signal
  if (body !== undefined) {
    init.body = JSON.stringify(body)
    init.headers = { ...init.headers, "Content-Type": "application/json" }
  }
  let response: Response
  try {
    response = await fetch(url, init)
  } catch (error) {
    if (signal?.aborted) throw error
    note({ offline: true })
    throw new OfflineError("The server cannot be reached.")
  }
  note({ offline: false })
  compareVersion(response.headers.get("x-hoglab-version"))
  if (response.status === 204) return undefined as T
  const answer: unknown = await response.json().catch(() => null)
  const tag = response.headers.get("etag")
  if (tag !== null && typeof answer === "object" && answer !== null) tags.set(answer, tag)
  if (response.ok) return answer as T
  if (response.status === 401 && !url.endsWith("/api/session/")) note({ loggedOut: true })
  throw toError(response, answer)
}

const tags = new WeakMap<object, string>()

/** The header with which a change is refused unless the object is still as this answer shows it. */
export function ifStillSo(answer: object): Record<string, string> {
  const tag = tags.get(answer)
  return tag === undefined ? {} : { "If-Match": tag }
}

function compareVersion(theirs: string | null): void {
  const ours = document.querySelector<HTMLMetaElement>("meta[name=hoglab]")?.content
  if (theirs && ours && ours !== "development" && theirs !== ours) note({ otherVersion: true })
}

function toError(response: Response, answer: unknown): ApiError {
  const body = (typeof answer === "object" && answer !== null ? answer : {}) as Record<string, unknown>
  const text = (name: string) => (typeof body[name] === "string" ? (body[name] as string) : null)
  const detail = text("detail") ?? `The server answered ${response.status}.`
  return new ApiError(response.status, detail, text("code") ?? "", text("attr"), response.headers.get("x-request-id"))
}

export function get<P extends PathOf<"get">>(path: P, parts: Parts<P>, query?: Query, signal?: AbortSignal): Promise<Answer<P, "get">> {
  return send("GET", address(path, parts, query), undefined, signal)
}

export function post<P extends PathOf<"post">>(path: P, parts: Parts<P>, body?: unknown, query?: Query): Promise<Answer<P, "post">> {
  return send("POST", address(path, parts, query), body)
}

export function patch<P extends PathOf<"patch">>(path: P, parts: Parts<P>, body: unknown, headers?: Record<string, string>): Promise<Answer<P, "patch">> {
  return send("PATCH", address(path, parts), body, undefined, headers)
}

export function remove<P extends PathOf<"delete">>(path: P, parts: Parts<P>): Promise<void> {
  return send("DELETE", address(path, parts))
}
