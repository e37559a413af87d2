// What differs between two states of something, as a table of fields.

import { Name, Theirs } from "./basics"

export interface Difference {
  label: string
  before: string
  after: string
}

/** The lines of two states that differ. */
export function differing(old: ReadonlyMap<string, string>, now: ReadonlyMap<string, string>): Difference[] {
  const labels = [...new Set([...old.keys(), ...now.keys()])]
  return labels.map((label) => ({ label, before: old.get(label) ?? "", after: now.get(label) ?? "" })).filter((line) => line.before !== line.after)
}

export function Differences({ lines, before = "Before", after = "After" }: { lines: readonly Difference[]; before?: string; after?: string }) {
  return (
    <div class="scroll" tabindex={0} role="region" aria-label="What changes">
      <table class="diff">
        <thead>
          <tr>
            <th scope="col">Field</th>
            <th scope="col">{before}</th>
            <th scope="col">{after}</th>
          </tr>
        </thead>
        <tbody>
          {lines.map((line) => (
            <tr key={line.label}>
              <th scope="row">
                <Name text={line.label} />
              </th>
              <td>{line.before === "" ? <span class="quiet">–</span> : <Theirs text={line.before} most={300} />}</td>
              <td>{line.after === "" ? <span class="quiet">–</span> : <strong><Theirs text={line.after} most={300} /></strong>}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}
