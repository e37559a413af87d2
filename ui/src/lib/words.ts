// The sentences that more than one screen says, in one place.

export const WORDS = {
  again: "Try again",
  cancel: "Cancel",
  close: "Close",
  copied: "Copied",
  copy: "Copy",
  gone: "Nothing is at this address",
  failed: "This could not be loaded",
  loading: "Loading",
  needsScope: (scope: string) => `Your session may not do this: it lacks the scope ${scope}.`,
  offline: "The server does not answer. The data shown is older; the page tries again every few seconds.",
  requestId: "Request",
  slow: "Still computing.",
  unknownPage: "There is no such page",
  updated: "hoglab was updated.",
  reload: "Reload",
  loggedOut: "Your session has ended.",
  logIn: "Log in again",
  showAll: "Show all",
  showLess: "Show less",
} as const

export const STATUS_WORDS: Record<string, string> = {
  draft: "draft",
  running: "running",
  paused: "paused",
  exposure_frozen: "closed to new people",
  stopped: "ended",
  complete: "ended",
}
