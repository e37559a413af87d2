// Sending a draft: one experiment however often it is sent, and nothing of somebody else's is overwritten.

import { address, ApiError, get, ifStillSo, patch, send } from "../../api/client"
import { invalidate } from "../../api/queryCache"
import type { Json } from "../../lib/loose"
import { EXPERIMENT } from "../addresses"
import { bodyOf, changesOf, type Draft, type Experiment, groupsOf, type Planned } from "./draft"

const EXPERIMENTS = "/api/projects/{project_id}/experiments/"
const FLAG = "/api/projects/{project_id}/feature_flags/{flag_id}/"

/** Somebody else has changed the experiment since the draft was begun. */
export class ChangedMeanwhile extends Error {
  constructor(readonly theirs: Experiment) {
    super("Somebody else has changed the experiment meanwhile.")
  }
}

/** The experiment is there, but its flag does not have the conditions yet. */
export class HalfSaved extends Error {
  constructor(
    readonly experiment: Experiment,
    override readonly cause: unknown,
  ) {
    super("The conditions could not be saved.")
  }
}

let sent: { body: string; key: string } | null = null

/** The key under which the same body makes the same experiment, also when an answer got lost. */
function keyFor(body: string): string {
  if (sent?.body !== body) sent = { body, key: [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("") }
  return sent.key
}

export async function create(project: string, draft: Draft, plan: Planned | null): Promise<Experiment> {
  const body: Json = { ...bodyOf(draft, plan), feature_flag_key: draft.key.trim() }
  const made = await send<Experiment>("POST", address(EXPERIMENTS, { project_id: project }), body, undefined, { "Idempotency-Key": keyFor(JSON.stringify(body)) })
  const flag = made.feature_flag
  if (!draft.isLinked && draft.conditions.length > 0 && flag) {
    try {
      await patch(FLAG, { project_id: project, flag_id: flag.id }, { filters: { groups: groupsOf(draft) } })
    } catch (error) {
      throw new HalfSaved(await get(EXPERIMENT, { project_id: project, experiment_id: made.id }), error)
    }
  }
  sent = null
  seen()
  return made
}

/** What tells two states of an experiment apart, flag included. */
export function stampOf(experiment: Experiment): string {
  return `${experiment.updated_at} ${experiment.feature_flag?.version ?? ""}`
}

export async function change(project: string, base: Experiment, draft: Draft, plan: Planned | null): Promise<void> {
  const parts = { project_id: project, experiment_id: base.id }
  const { fields, groups } = changesOf(base, draft, plan)
  const flagPart = { ...(base.start_date !== null && "parameters" in fields && { update_feature_flag_params: true }) }
  const attempt = async (as: Experiment): Promise<Experiment> => {
    try {
      return Object.keys(fields).length > 0 ? await patch(EXPERIMENT, parts, { ...fields, ...flagPart }, ifStillSo(as)) : as
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 412) throw error
      const now = await get(EXPERIMENT, parts)
      if (stampOf(now) === stampOf(as)) return attempt(now)
      throw new ChangedMeanwhile(now)
    }
  }
  const saved = await attempt(base)
  if (groups !== null && saved.feature_flag) {
    const flag = await get(FLAG, { project_id: project, flag_id: saved.feature_flag.id })
    if (flag.version !== saved.feature_flag.version) throw new ChangedMeanwhile(await get(EXPERIMENT, parts))
    try {
      await patch(FLAG, { project_id: project, flag_id: flag.id }, { filters: { groups } }, ifStillSo(flag))
    } catch (error) {
      throw new HalfSaved(await get(EXPERIMENT, parts), error)
    }
  }
  seen()
}

function seen(): void {
  invalidate("/experiments/")
  invalidate("/feature_flags/")
  invalidate("/activity_log/")
}
