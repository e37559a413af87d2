// Scopes of a key: what it may do with each kind of object.

export const OBJECTS = [
  "experiment", "experiment_holdout", "experiment_saved_metric", "feature_flag", "hog_function", "cohort", "action", "person", "group", "query", "warehouse_table", "activity_log", "project", "organization", "personal_api_key", "user",
] as const

export type Level = "none" | "read" | "write"
export type Choice = Readonly<Record<string, Level>>

export const PRESETS: readonly (readonly [string, string, Choice | "*"])[] = [
  ["read", "Read everything", Object.fromEntries(OBJECTS.map((each) => [each, "read"]))],
  ["experiments", "Run experiments", { experiment: "write", experiment_holdout: "write", experiment_saved_metric: "write", feature_flag: "write", query: "read", project: "read", user: "read", activity_log: "read" }],
  ["flags", "Steer flags", { feature_flag: "write", cohort: "read", person: "read", project: "read", user: "read" }],
  ["functions", "Run functions", { hog_function: "write", query: "read", person: "read", project: "read", user: "read" }],
  ["all", "Everything", "*"],
]

/** The scopes of a choice, as keys hold them; writing holds reading. */
export function scopesOf(choice: Choice | "*"): string[] {
  if (choice === "*") return ["*"]
  return Object.entries(choice).flatMap(([object, level]) => (level === "none" ? [] : [`${object}:${level}`]))
}
