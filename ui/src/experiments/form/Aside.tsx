// Beside the form: the whole experiment in a few sentences, what is missing, and what happens at the launch.

import { visible } from "../../lib/format"
import { consequences } from "../lifecycle"
import { type Draft, type Planned, problemsOf } from "./draft"
import { sourceName } from "./metric"
import type { Lists } from "./sources"
import { plannedOf, summaryOf } from "./words"

const PARTS: readonly (readonly [RegExp, string])[] = [[/^(name|hypothesis)$/, "part-idea"], [/^(key|variants)$/, "part-flag"], [/^(rollout|conditions|exposure)$/, "part-who"], [/^metric/, "part-metrics"], [/^level$/, "part-deciding"], [/./, "part-plan"]]

/** The part of the form that a place is in. */
export function partOf(place: string): string {
  return PARTS.find(([pattern]) => pattern.test(place))?.[1] ?? "part-idea"
}

/** Scroll to a part, and let the keyboard go on there. */
export function goTo(part: string): void {
  const heading = document.getElementById(part)
  if (!heading) return
  heading.scrollIntoView({ block: "start" })
  const field = heading.parentElement?.querySelector<HTMLElement>("[aria-invalid], input:not([disabled]), select, textarea, button")
  field?.focus({ preventScroll: true })
}

interface Gap {
  part: string
  words: string
  isBlocking: boolean
}

/** What a launch would miss; blocking: the draft cannot be saved like this. */
export function gapsOf(draft: Draft, plan: Planned | null, lists: Lists): Gap[] {
  const gaps: Gap[] = Object.entries(problemsOf(draft)).map(([place, words]) => ({ part: partOf(place), words, isBlocking: true }))
  if (!draft.metrics.some(({ role }) => role === "primary") && !draft.shared.some(({ role }) => role === "primary")) gaps.push({ part: "part-metrics", words: "No primary metric decides it.", isBlocking: false })
  else if (plannedOf(draft, plan).days === null) gaps.push({ part: "part-plan", words: "Nobody has planned how long it runs.", isBlocking: false })
  if (draft.hypothesis.trim() === "") gaps.push({ part: "part-idea", words: "It has no hypothesis.", isBlocking: false })
  const names = new Set(draft.metrics.flatMap(({ sources }) => sources.filter((source) => source.kind === "EventsNode" && source.event.trim() !== "").map((source) => sourceName(source))))
  const missing = lists.seen === null ? [] : [...names].filter((name) => !lists.seen?.has(name))
  if (missing.length > 0 && (lists.seen?.size ?? 0) < 500) gaps.push({ part: "part-metrics", words: `No “${missing[0]?.slice(0, 60) ?? ""}” event came in the last 30 days.`, isBlocking: false })
  return gaps
}

interface Props {
  draft: Draft
  plan: Planned | null
  lists: Lists
  isLaunched: boolean
}

export function Aside({ draft, plan, lists, isLaunched }: Props) {
  const gaps = gapsOf(draft, plan, lists)
  return (
    <aside class="card who" aria-label="Summary">
      <h2>In short</h2>
      {draft.name.trim() && <h3>{visible(draft.name.slice(0, 120))}</h3>}
      {summaryOf(draft, plan, lists.actions).map((sentence) => (
        <p key={sentence}>{visible(sentence)}</p>
      ))}
      {gaps.length > 0 && (
        <>
          <h3>Still missing</h3>
          <ul class="checks">
            {gaps.map(({ part, words, isBlocking }) => (
              <li key={words} class={isBlocking ? "blocking" : "open"}>
                <span aria-hidden="true">{isBlocking ? "✗" : "⚠"}</span>
                <button type="button" class="inline" onClick={() => goTo(part)}>
                  {visible(words)}
                </button>
              </li>
            ))}
          </ul>
        </>
      )}
      {!isLaunched && (
        <>
          <h3>At the launch</h3>
          <ul>
            {consequences("launch", { status: "draft", archived: false, feature_flag_key: draft.key || "…" }, null).map((line) => (
              <li key={line}>{visible(line)}</li>
            ))}
          </ul>
        </>
      )}
    </aside>
  )
}
