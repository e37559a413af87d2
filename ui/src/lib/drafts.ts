// Forms that nobody has saved yet, kept for this tab of the browser until they are saved or their user logs out.

const PREFIX = "hoglab.draft."

export function keepDraft(name: string, draft: unknown): void {
  try {
    sessionStorage.setItem(PREFIX + name, JSON.stringify(draft))
  } catch {
    // Without storage a draft lasts as long as the page.
  }
}

/** A draft that was kept; null: there is none. Its shape is that of the version of the page that kept it. */
export function keptDraft(name: string): unknown {
  try {
    return JSON.parse(sessionStorage.getItem(PREFIX + name) ?? "null") as unknown
  } catch {
    return null
  }
}

export function dropDraft(name: string): void {
  try {
    sessionStorage.removeItem(PREFIX + name)
  } catch {
    // Nothing was kept.
  }
}

export function dropDrafts(): void {
  try {
    for (const name of Object.keys(sessionStorage)) if (name.startsWith(PREFIX)) sessionStorage.removeItem(name)
  } catch {
    // Nothing was kept.
  }
}
