// Every screen and its address: one table, each screen loaded when it is wanted.

import type { ComponentType } from "preact"
import { asksOfExperiment } from "../experiments/addresses"
import { match, type Place } from "../lib/router"

export interface ScreenProps {
  project: string
  zone: string
  id: string
  /** Further parts of the address. */
  key2: string
}

type Content = ComponentType<ScreenProps>

export interface Load {
  (): Promise<Content>
  /** The screen once it is loaded. */
  now?: Content
}

function screen(load: () => Promise<{ default: Content }>): Load {
  const found: Load = async () => (found.now = (await load()).default)
  return found
}

interface Route {
  pattern: string
  load: Load
  /** The entry of the navigation that the screen belongs to. */
  section: string
  /** Without this scope the API answers nothing that the screen shows. */
  scope: string
  /** The addresses of the API that it asks for in any case. */
  asks?: (parts: Record<string, string>) => string[]
}

const list = screen(() => import("../experiments/List"))
const form = screen(() => import("../experiments/form/Form"))
const results = screen(() => import("../experiments/Results"))
const explorer = screen(() => import("../events/Explorer"))
const live = screen(() => import("../events/Live"))
const status = screen(() => import("../status/Status"))
const event = screen(() => import("../events/Event"))
const person = screen(() => import("../people/Person"))
const group = screen(() => import("../people/Group"))
const flags = screen(() => import("../flags/List"))
const flag = screen(() => import("../flags/Flag"))
const hog = screen(() => import("../functions/Function"))
const setup = screen(() => import("../setup/Setup"))
const project = screen(() => import("../settings/Project"))
const keys = screen(() => import("../settings/Keys"))

// Addresses of PostHog's shape, which functions put into messages, are here beside our own.
export const ROUTES: readonly Route[] = [
  { pattern: "/p/:project", load: list, section: "experiments", scope: "experiment:read" },
  { pattern: "/p/:project/experiments", load: list, section: "experiments", scope: "experiment:read" },
  { pattern: "/p/:project/experiments/new", load: form, section: "experiments", scope: "experiment:read" },
  { pattern: "/p/:project/experiments/:id/edit", load: form, section: "experiments", scope: "experiment:read" },
  { pattern: "/p/:project/experiments/:id", load: results, section: "experiments", scope: "experiment:read", asks: asksOfExperiment },
  { pattern: "/p/:project/events", load: explorer, section: "events", scope: "query:read" },
  { pattern: "/p/:project/events/live", load: live, section: "live", scope: "query:read" },
  { pattern: "/p/:project/events/:id", load: event, section: "events", scope: "query:read" },
  { pattern: "/p/:project/events/:id/:key2", load: event, section: "events", scope: "query:read" },
  { pattern: "/p/:project/person/:id", load: person, section: "", scope: "person:read" },
  { pattern: "/p/:project/persons/:id", load: person, section: "", scope: "person:read" },
  { pattern: "/p/:project/people/:id", load: person, section: "", scope: "person:read" },
  { pattern: "/p/:project/groups/:id/:key2", load: group, section: "", scope: "group:read" },
  { pattern: "/p/:project/feature_flags", load: flags, section: "flags", scope: "feature_flag:read" },
  { pattern: "/p/:project/flags", load: flags, section: "flags", scope: "feature_flag:read" },
  { pattern: "/p/:project/feature_flags/:id", load: flag, section: "flags", scope: "feature_flag:read" },
  { pattern: "/p/:project/flags/:id", load: flag, section: "flags", scope: "feature_flag:read" },
  { pattern: "/p/:project/functions/:id", load: hog, section: "", scope: "hog_function:read" },
  { pattern: "/p/:project/functions/:id/*", load: hog, section: "", scope: "hog_function:read" },
  { pattern: "/p/:project/setup", load: setup, section: "setup", scope: "project:read" },
  { pattern: "/p/:project/settings/project", load: project, section: "project", scope: "project:read" },
  { pattern: "/p/:project/settings/keys", load: keys, section: "keys", scope: "personal_api_key:read" },
  { pattern: "/status", load: status, section: "status", scope: "organization:read" },
]

export interface Found {
  route: Route
  parts: Record<string, string>
}

/** The screen of an address; null: there is none. */
export function find({ path }: Place): Found | null {
  for (const route of ROUTES) {
    const parts = match(route.pattern, path)
    if (parts) return { route, parts }
  }
  return null
}

/** The path below a project, when an address left it out because there is only one. */
export function withProject(path: string, project: number): string | null {
  if (path === "/setup") return `/p/${project}/setup`
  const first = path.split("/")[1] ?? ""
  const known = ["experiments", "events", "person", "persons", "people", "groups", "feature_flags", "flags", "functions", "settings"]
  return known.includes(first) ? `/p/${project}${path}` : null
}
