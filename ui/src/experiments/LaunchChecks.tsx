// What should be true before a launch, and what is not; people who launch anyway say so.

import { useEffect, useId, useState } from "preact/hooks"
import { useGet } from "../api/queryCache"
import { Loaded } from "../kit/states"
import { visible } from "../lib/format"

interface Props {
  parts: { project_id: string; experiment_id: string | number }
  onReady: (ready: boolean) => void
}

const MARKS = { met: "✓", open: "⚠", blocking: "✗" } as const
const MARK_WORDS = { met: "Met", open: "Not met", blocking: "Not met, and it blocks the launch" } as const

export function LaunchChecks({ parts, onReady }: Props) {
  const answer = useGet("/api/projects/{project_id}/experiments/{experiment_id}/launch_checks/", parts)
  const [anyway, setAnyway] = useState(false)
  const id = useId()
  const isReady = answer.value?.is_ready ?? answer.error !== undefined
  useEffect(() => onReady(isReady || anyway), [isReady, anyway])
  return (
    <Loaded answer={answer} rows={5}>
      {({ checks, is_ready: ready }) => (
        <>
          <h3>Before the launch</h3>
          <ul class="checks">
            {checks.map((check) => {
              const state = check.passed ? "met" : check.is_blocking ? "blocking" : "open"
              return (
                <li key={`${check.code} ${check.message}`} class={state}>
                  <span aria-hidden="true">{MARKS[state]}</span> <span class="unseen">{MARK_WORDS[state]}: </span>
                  <span>
                    {visible(check.message)} {check.advice && <span class="quiet">{visible(check.advice)}</span>}
                  </span>
                </li>
              )
            })}
          </ul>
          {!ready && (
            <p class="caution">
              <strong>Checks with a ✗ leave the experiment without results, or with wrong ones.</strong>
              <br />
              <input id={id} type="checkbox" checked={anyway} onChange={(event) => setAnyway(event.currentTarget.checked)} /> <label for={id}>Launch it anyway</label>
            </p>
          )}
        </>
      )}
    </Loaded>
  )
}
