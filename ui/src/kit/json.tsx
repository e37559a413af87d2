// JSON as a tree of texts; long lists and deep levels are folded until somebody looks.

import { useState } from "preact/hooks"
import { counted, countText, safeLink } from "../lib/format"
import { Theirs } from "./basics"

const OPEN_LEVELS = 2
const FIRST = 100

export function Json({ value, level = 0 }: { value: unknown; level?: number }) {
  if (value === null || typeof value === "number" || typeof value === "boolean") return <code class="json-plain">{String(value)}</code>
  if (typeof value === "string") return <Text text={value} />
  const entries: [string, unknown][] = Array.isArray(value) ? value.map((each, at) => [String(at), each]) : Object.entries(value ?? {})
  if (entries.length === 0 && level === 0) return <p class="quiet">None.</p>
  if (entries.length === 0) return <code class="json-plain">{Array.isArray(value) ? "[]" : "{}"}</code>
  if (level === 0) return <Entries entries={entries} level={level} list={Array.isArray(value)} />
  return (
    <details open={level < OPEN_LEVELS && entries.length <= 10}>
      <summary>{Array.isArray(value) ? `list of ${countText(entries.length)}` : counted(entries.length, "key")}</summary>
      <Entries entries={entries} level={level} list={Array.isArray(value)} />
    </details>
  )
}

function Entries({ entries, level, list }: { entries: [string, unknown][]; level: number; list: boolean }) {
  const [most, setMost] = useState(FIRST)
  return (
    <>
      <dl class={list ? "json numbered" : "json"}>
        {entries.slice(0, most).map(([key, value]) => (
          <div key={key}>
            <dt>
              <Theirs text={key} most={80} />
            </dt>
            <dd>
              <Json value={value} level={level + 1} />
            </dd>
          </div>
        ))}
      </dl>
      {entries.length > most && (
        <button type="button" class="inline" onClick={() => setMost(most + 10 * FIRST)}>
          {countText(entries.length - most)} more
        </button>
      )}
    </>
  )
}

function Text({ text }: { text: string }) {
  const link = safeLink(text)
  if (link === null) return <Theirs text={text} most={500} />
  return (
    <a href={link} rel="noreferrer noopener" target="_blank">
      <Theirs text={text} most={500} />
    </a>
  )
}
