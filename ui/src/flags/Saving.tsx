// Before a flag is saved: what changes, and what that means for a running experiment. After a refusal: what came between.

import { Button, Name } from "../kit/basics"
import { Differences } from "../kit/differences"
import { Confirm } from "../kit/dialog"
import { makerText } from "../kit/lists"
import { clipped, visible } from "../lib/format"
import { type Draft, differencesOf, draftOf } from "./draft"
import { type Flag, runningOf } from "./model"

interface SavingProps {
  flag: Flag
  draft: Draft
  names: ReadonlyMap<string, string>
  save: () => Promise<void>
  onClose: () => void
}

export function SavingDialog({ flag, draft, names, save, onClose }: SavingProps) {
  const lines = differencesOf(draftOf(flag), draft, names)
  const running = runningOf(flag)
  const touches = lines.some(({ label }) => /^(Condition|Variants|Decides|Kept)/.test(label))
  return (
    <Confirm title={`Save “${clipped(flag.key, 60)}”`} verb="Save" act={save} onClose={onClose}>
      <Differences lines={lines} />
      {touches &&
        running.map((name) => (
          <p key={name} class="caution">
            The experiment “{visible(name.slice(0, 80))}” is running and this flag decides who sees what in it. People may change variants, and a new split begins a new phase of its results.
          </p>
        ))}
      {lines.some(({ label }) => label === "Key") && <p class="caution">Code that asks for “{clipped(flag.key, 60)}” no longer finds the flag, and people are drawn again: the key is part of the draw.</p>}
    </Confirm>
  )
}

interface ConflictProps {
  /** The flag as the draft began from, and as it is stored by now. */
  base: Flag
  theirs: Flag
  names: ReadonlyMap<string, string>
  keep: () => void
  drop: () => void
}

/** Somebody else saved the flag meanwhile: their change is shown, and nothing is overwritten before somebody has seen it. */
export function Conflict({ base, theirs, names, keep, drop }: ConflictProps) {
  const who = theirs.last_modified_by ? makerText(theirs.last_modified_by) : "The server"
  return (
    <section class="caution" role="alert">
      <h2>Somebody else changed this flag meanwhile</h2>
      <p>
        <Name text={who} /> saved version {theirs.version} while you edited version {base.version}. Nothing of yours is saved yet.
      </p>
      <Differences lines={differencesOf(draftOf(base), draftOf(theirs), names)} before="When you began" after="Now" />
      <div class="row-buttons">
        <Button onClick={keep}>Keep my edits and compare again</Button>
        <Button onClick={drop}>Drop my edits</Button>
      </div>
    </section>
  )
}
