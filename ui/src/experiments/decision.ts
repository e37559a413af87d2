// What a verdict recommends, what people decided, and whether the two agree.

import { visible } from "../lib/format"
import { list, object, text } from "../lib/loose"
import { variantsOf } from "./definition"
import { type Action, actionsOf, type Subject } from "./lifecycle"
import type { Verdict } from "./reading"

export interface Step {
  action?: Action
  tab?: string
  words: string
}

/** The variant that a flag gives to everybody whom it reaches; null while several share them. */
export function shippedOf(experiment: object): string | null {
  return variantsOf(experiment).find((variant) => variant.share === 100)?.key ?? null
}

/** The filters that a flag had before a variant was shipped, from its log, newest entry first; null where it was changed since. */
export function filtersBefore(log: readonly Entry[], variant: string): Record<string, unknown> | null {
  const changes = log.flatMap((entry) => list(object(entry.detail).changes)).filter((change) => change.field === "filters")
  const [newest] = changes
  const shippedIn = (filters: unknown) => shippedOf({ feature_flag: { filters } })
  return newest && shippedIn(newest.after) === variant && shippedIn(newest.before) !== variant ? object(newest.before) : null
}

/** The next step that a verdict names: something to do, or where to look; null: only waiting helps, or it is done. */
export function stepOf(experiment: Subject, verdict: Verdict | null, baseline: string | null): Step | null {
  const step = verdict && wanted(verdict, baseline, !actionsOf(experiment).includes("end"))
  if (!verdict || !step) return null
  if (step.action && !actionsOf(experiment).includes(step.action)) return null
  const shipped = shippedOf(experiment)
  return step.action === "ship_variant" && shipped !== null && disagreement(verdict, baseline, shipped) === null ? null : step
}

function wanted(verdict: Verdict, baseline: string | null, hasEnded: boolean): Step | null {
  switch (verdict.next_action.code) {
    case "ship_variant":
      return { action: "ship_variant", words: `Ship ${visible(verdict.next_action.variant ?? "")} …` }
    case "keep_baseline":
    case "stop":
    case "stop_for_harm":
      return hasEnded ? { action: "ship_variant", words: `Ship ${visible(baseline ?? "")} …` } : { action: "end", words: "End …" }
    case "choose_variant":
    case "weigh":
      return { action: "ship_variant", words: "Ship a variant …" }
    case "fix":
    case "fix_assignment":
    case "fix_exposures":
    case "fix_flag":
    case "fix_metric":
      return { tab: "health", words: "Show the problem" }
    case "add_metric":
    case "write_plan":
      return { tab: "setup", words: "Show the set-up" }
    default:
      return null
  }
}

/** The action whose button stands out: the verdict's step, or the launch of a draft; null while nothing is to be done. */
export function primaryAction(experiment: Subject, verdict: Verdict | null, baseline: string | null): Action | null {
  if (experiment.status === "draft" && !experiment.archived) return "launch"
  return stepOf(experiment, verdict, baseline)?.action ?? null
}

/** Why shipping a variant is not what the verdict recommends, as a sentence; null where it is, or where it leaves it open. */
export function disagreement(verdict: Verdict, baseline: string | null, variant: string): string | null {
  const { code, variant: best } = verdict.next_action
  const name = (key: string | null) => `“${visible(key ?? "")}”`
  const stateOf = (key: string) => verdict.variants.find((each) => each.variant === key)?.state
  if (verdict.withholds_decisions) return "The verdict says not to decide by these numbers."
  switch (code) {
    case "ship_variant":
      return variant === best ? null : `The verdict recommends ${name(best)}, not ${name(variant)}.`
    case "choose_variant":
      return stateOf(variant) === "better" ? null : `The verdict does not count ${name(variant)} among the better variants.`
    case "weigh":
      return null
    case "keep_baseline":
    case "stop":
      return variant === baseline ? null : `The verdict recommends to keep ${name(baseline)}.`
    case "stop_for_harm":
      return stateOf(variant) === "worse" ? `The verdict says that ${name(variant)} does harm.` : variant === baseline ? null : `The verdict does not say that ${name(variant)} is better.`
    default:
      return "The verdict does not say that it can be decided yet."
  }
}

const CONCLUDED: Record<string, readonly string[]> = {
  won: ["better", "mixed"],
  lost: ["worse", "mixed"],
  inconclusive: ["inconclusive", "mixed", "running"],
}

/** Whether the conclusion that people wrote down contradicts the verdict's state. */
export function contradicts(verdict: Verdict, conclusion: string | null | undefined): boolean {
  const states = conclusion ? CONCLUDED[conclusion] : undefined
  if (states === undefined) return false
  return verdict.withholds_decisions ? conclusion !== "inconclusive" : !states.includes(verdict.state)
}

export interface Deed {
  by: string
  at: string
  /** The variant that was shipped; null: the experiment was ended. */
  shipped: string | null
}

interface Entry {
  created_at: string
  user?: unknown
  detail?: unknown
}

/** Who ended the experiment and who shipped a variant, from its log, newest entry first; a reset makes all before it void. */
export function deedsOf(log: readonly Entry[]): { ended: Deed | null; shipped: Deed | null } {
  const deeds: Deed[] = []
  for (const entry of log) {
    const user = object(entry.user)
    const by = text(user.first_name) ?? text(user.email) ?? "hoglab"
    const changes = list(object(entry.detail).changes)
    if (changes.some((change) => change.field === "start_date" && !change.after)) break
    for (const { field, after } of changes) {
      if (field === "shipped_variant") deeds.push({ by, at: entry.created_at, shipped: String(after) })
      if (field === "end_date" && after) deeds.push({ by, at: entry.created_at, shipped: null })
    }
  }
  return { ended: deeds.find((deed) => deed.shipped === null) ?? null, shipped: deeds.find((deed) => deed.shipped !== null) ?? null }
}
