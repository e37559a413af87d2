// What the browser remembers for its user: preferences, never data of projects and never a credential.

const NAMES = { theme: "hoglab.theme", shortcuts: "hoglab.shortcuts", known: "hoglab.known" } as const
export type Preference = keyof typeof NAMES

export function preference(name: Preference): string | null {
  try {
    return localStorage.getItem(NAMES[name])
  } catch {
    return null
  }
}

export function prefer(name: Preference, value: string | null): void {
  try {
    if (value === null) localStorage.removeItem(NAMES[name])
    else localStorage.setItem(NAMES[name], value)
  } catch {
    // Without storage a preference lasts as long as the page.
  }
  apply()
}

/** Let the document look as preferred. */
export function apply(): void {
  const root = document.documentElement
  const theme = preference("theme")
  if (theme === "light" || theme === "dark") root.dataset.theme = theme
  else delete root.dataset.theme
}
