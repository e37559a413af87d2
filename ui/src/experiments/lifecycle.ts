// What may be done with an experiment in its state, and what follows from it.

export type Action =
  | "launch" | "pause" | "resume" | "freeze_exposure" | "unfreeze_exposure" | "end" | "ship_variant" | "archive" | "unarchive" | "duplicate" | "reset"

export interface Subject {
  status: string
  archived: boolean
  feature_flag_key: string | null
}

/** What the API allows, the most likely first. */
export function actionsOf(experiment: Subject): Action[] {
  if (experiment.archived) return ["unarchive", "ship_variant", "duplicate", "reset"]
  switch (experiment.status) {
    case "draft":
      return ["launch", "duplicate"]
    case "running":
      return ["end", "pause", "ship_variant", "freeze_exposure", "duplicate", "reset"]
    case "paused":
      return ["resume", "end", "ship_variant", "duplicate", "reset"]
    case "exposure_frozen":
      return ["end", "unfreeze_exposure", "pause", "ship_variant", "duplicate", "reset"]
    default:
      return ["ship_variant", "archive", "duplicate", "reset"]
  }
}

export const ACTION_WORDS: Record<Action, string> = {
  launch: "Launch",
  pause: "Pause",
  resume: "Resume",
  freeze_exposure: "Close to new people",
  unfreeze_exposure: "Open to new people",
  end: "End",
  ship_variant: "Ship",
  archive: "Archive",
  unarchive: "Bring back",
  duplicate: "Duplicate",
  reset: "Reset to draft",
}

/** What an action does to the experiment and to its flag, told beforehand. */
export function consequences(action: Action, experiment: Subject, people: number | null): string[] {
  const flag = `The flag “${experiment.feature_flag_key ?? ""}”`
  const them = people === null ? "People" : `${people.toLocaleString("en")} people`
  switch (action) {
    case "launch":
      return [`${flag} is switched on: people get their variants from now on.`, "From now on the variants are fixed."]
    case "pause":
      return [`${flag} is switched off: ${them.toLowerCase()} see what they saw before the experiment.`, "Results stay; new people are not counted."]
    case "resume":
      return [`${flag} is switched on again; people get the variants that they had.`]
    case "freeze_exposure":
      return [`${flag} gives variants only to those who have seen one already.`, "Nobody new takes part; actions of current people still count."]
    case "unfreeze_exposure":
      return [`${flag} gives variants to everybody whom it reaches again.`]
    case "end":
      return ["Results count up to now and stay.", `${flag} stays as it is: people keep their variants until one is shipped.`]
    case "archive":
      return ["The experiment leaves the list; its results stay.", `${flag} is put away with it, where it is off and nothing else needs it.`]
    case "unarchive":
      return ["The experiment is in the list again, ended as it was.", `${flag} comes back too, where it was put away with it.`]
    case "duplicate":
      return ["A new draft with the same variants, metrics and settings. This one stays as it is.", "Both share the flag, unless the draft is given another one."]
    case "reset":
      return ["Start, end and conclusion are deleted: the experiment is a draft again.", `${flag} stays as it is. Events stay, but results start over at the next launch.`]
    case "ship_variant":
      return []
  }
}

/** A flag's filters after a variant was shipped, as the server makes them. */
export function shipped(filters: Record<string, unknown>, variant: string, everyone: boolean): Record<string, unknown> {
  const multivariate = filters.multivariate as { variants?: { key: string }[] } | undefined
  const variants = (multivariate?.variants ?? []).map((each) => ({ ...each, rollout_percentage: each.key === variant ? 100 : 0 }))
  const groups = Array.isArray(filters.groups) ? filters.groups : []
  const all = everyone ? [{ properties: [], rollout_percentage: 100 }, ...groups] : groups
  return { ...filters, groups: all, multivariate: { ...multivariate, variants } }
}

/** Who else will see a variant: the people of all others. */
export function switching(totals: Readonly<Record<string, number>>, variant: string): number {
  return Object.entries(totals).reduce((sum, [key, count]) => (key === variant || key === "$multiple" ? sum : sum + count), 0)
}

/** What people may write down as the conclusion of an experiment. */
export const CONCLUSION_WORDS: Record<string, string> = { won: "Won", lost: "Lost", inconclusive: "Inconclusive", stopped_early: "Stopped early", invalid: "Invalid" }
