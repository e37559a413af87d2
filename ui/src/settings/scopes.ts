// Scopes of a key: what it may do with each kind of object, in words and as the API writes it.

/** Each kind of object that scopes name, as people call it. */
const NOUNS = {
  experiment: "experiments",
  experiment_holdout: "holdouts",
  experiment_saved_metric: "shared metrics",
  feature_flag: "feature flags",
  hog_function: "functions",
  cohort: "cohorts",
  action: "actions",
  person: "people",
  group: "groups",
  query: "events and results",
  warehouse_table: "tables of files",
  activity_log: "the activity log",
  project: "project settings",
  organization: "the organization and the system status",
  personal_api_key: "API keys",
  user: "users",
} as const

type ObjectKind = keyof typeof NOUNS

export const OBJECTS = Object.keys(NOUNS) as readonly ObjectKind[]

export type Level = "none" | "read" | "write"
export type Choice = Readonly<Record<string, Level>>

export const LEVELS: readonly (readonly [Level, string])[] = [["none", "no access"], ["read", "read"], ["write", "read and change"]]

export const PRESETS: readonly (readonly [string, string, Choice | "*"])[] = [
  ["read", "Read everything", Object.fromEntries(OBJECTS.map((kind) => [kind, "read"]))],
  ["experiments", "Run experiments", { experiment: "write", experiment_holdout: "write", experiment_saved_metric: "write", feature_flag: "write", query: "read", project: "read", user: "read", activity_log: "read" }],
  ["flags", "Manage flags", { feature_flag: "write", cohort: "read", person: "read", project: "read", user: "read" }],
  ["functions", "Run functions", { hog_function: "write", query: "read", person: "read", project: "read", user: "read" }],
  ["all", "Allow everything", "*"],
]

/** The scopes of a choice, as keys hold them; writing includes reading. */
export function scopesOf(choice: Choice | "*"): string[] {
  if (choice === "*") return ["*"]
  return Object.entries(choice).flatMap(([kind, level]) => (level === "none" ? [] : [`${kind}:${level}`]))
}

/** What people call a kind of object. */
export function nounOf(kind: string): string {
  return (NOUNS as Record<string, string>)[kind] ?? kind.replaceAll("_", " ")
}

function enumerated(words: readonly string[]): string {
  return words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`
}

/** What scopes allow, in a sentence: "Read and change experiments. Read feature flags and users." */
export function scopesText(scopes: readonly string[]): string {
  if (scopes.includes("*")) return "Everything that you may do."
  const nouns = (action: string) => OBJECTS.filter((kind) => scopes.includes(`${kind}:${action}`)).map(nounOf)
  const others = scopes.filter((scope) => !OBJECTS.some((kind) => scope === `${kind}:read` || scope === `${kind}:write`))
  const [changed, read] = [nouns("write"), nouns("read").filter((noun) => !nouns("write").includes(noun))]
  const sentences = [
    changed.length > 0 && `Read and change ${enumerated(changed)}.`,
    read.length === OBJECTS.length ? "Read everything." : read.length > 0 && `Read ${enumerated(read)}.`,
    others.length > 0 && `Also ${enumerated(others)}.`,
  ]
  return sentences.filter(Boolean).join(" ") || "Nothing."
}
