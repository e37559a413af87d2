// Before a launched experiment is changed: what each change means. After a refusal: what came between.

import { Button } from "../../kit/basics"
import { Differences, differing } from "../../kit/differences"
import { Confirm } from "../../kit/dialog"
import { visible } from "../../lib/format"
import { type Draft, draftOf, type Experiment } from "./draft"
import { kindOf, linesOf } from "./words"

const MEANING = {
  safe: ["Safe", "People keep their variants, and results stay comparable."],
  phase: ["Changes who gets what", "A new split begins a new phase: each phase is tested against its own split. People may change variants."],
  amends: ["Amends the plan", "The verdict tells beside itself that the plan was changed after the launch. Its error rates hold for the plan of the launch."],
} as const

interface ReviewProps {
  base: Experiment
  draft: Draft
  actions: ReadonlyMap<string, string>
  save: () => Promise<void>
  onClose: () => void
}

export function Review({ base, draft, actions, save, onClose }: ReviewProps) {
  const before = draftOf(base)
  const lines = differing(linesOf(before, actions), linesOf(draft, actions))
  return (
    <Confirm title={`Change “${visible(base.name.slice(0, 60))}”`} verb="Save" act={save} onClose={onClose}>
      {(["phase", "amends", "safe"] as const).map((kind) => {
        const own = lines.filter(({ label }) => kindOf(label, before, draft) === kind)
        const [title, words] = MEANING[kind]
        return (
          own.length > 0 && (
            <section key={kind}>
              <h3>{title}</h3>
              <p class={kind === "safe" ? "quiet" : "caution"}>{words}</p>
              <Differences lines={own} />
            </section>
          )
        )
      })}
      {lines.length === 0 && <p>Nothing differs from what is saved.</p>}
    </Confirm>
  )
}

interface ConflictProps {
  base: Experiment
  theirs: Experiment
  actions: ReadonlyMap<string, string>
  keep: () => void
  drop: () => void
}

export function Conflict({ base, theirs, actions, keep, drop }: ConflictProps) {
  const lines = differing(linesOf(draftOf(base), actions), linesOf(draftOf(theirs), actions))
  return (
    <section class="caution" role="alert">
      <h2>Somebody else changed this experiment meanwhile</h2>
      <p>
        Nothing of yours is saved yet.{" "}
        {base.status !== theirs.status && `It is ${theirs.status} now. `}
        {lines.length === 0 && "The form shows nothing of what they changed."}
      </p>
      {lines.length > 0 && <Differences lines={lines} before="When you began" after="Now" />}
      <div class="row-buttons">
        <Button onClick={keep}>Keep my edits and compare again</Button>
        <Button onClick={drop}>Drop my edits</Button>
      </div>
    </section>
  )
}
