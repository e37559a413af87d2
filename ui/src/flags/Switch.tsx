// The switch of a flag: it says what will change before it does, and can be undone.

import { useState } from "preact/hooks"
import { patch } from "../api/client"
import { invalidate } from "../api/queryCache"
import { lacks } from "../api/session"
import { Confirm } from "../kit/dialog"
import { told } from "../kit/states"
import { toast } from "../kit/toasts"
import { clipped, visible } from "../lib/format"
import { WORDS } from "../lib/words"
import { FLAG, type Flag, switching } from "./model"

export function Switch({ flag, project }: { flag: Flag; project: string }) {
  const [asking, setAsking] = useState(false)
  const missing = lacks("feature_flag:write")
  const why = missing ? WORDS.needsScope(missing) : flag.archived ? "An archived flag is off. Take it out of the archive first." : undefined
  const key = clipped(flag.key, 60)
  const verb = flag.active ? "Switch off" : "Switch on"
  return (
    <>
      <button
        type="button"
        role="switch"
        class="switch"
        aria-checked={flag.active}
        aria-disabled={why ? true : undefined}
        aria-label={`${key} is ${flag.active ? "on" : "off"}`}
        title={why}
        onClick={why ? undefined : () => setAsking(true)}
      >
        {flag.active ? "On" : "Off"}
      </button>
      {asking && (
        <Confirm title={`${verb} “${key}”`} verb={verb} danger={flag.active} act={() => change(flag, project, !flag.active)} onClose={() => setAsking(false)}>
          <ul>
            {switching(flag).map((line) => (
              <li key={line}>{visible(line)}</li>
            ))}
          </ul>
        </Confirm>
      )}
    </>
  )
}

async function change(flag: Flag, project: string, active: boolean): Promise<void> {
  await patch(FLAG, { project_id: project, flag_id: flag.id }, { active })
  invalidate("/feature_flags/")
  const undo = () =>
    void patch(FLAG, { project_id: project, flag_id: flag.id }, { active: !active }).then(
      () => {
        invalidate("/feature_flags/")
        toast(`${clipped(flag.key, 60)} is ${active ? "off" : "on"} again.`)
      },
      (error: unknown) => toast(told(error).detail),
    )
  toast(`${clipped(flag.key, 60)} is ${active ? "on" : "off"}.`, { label: "Undo", act: undo })
}
