// Which keys mean what, and which commands a text finds.

export interface Command {
  text: string
  kind: string
  to: string
}

export const SHORTCUTS = [
  ["Ctrl K", "Search, go to, commands"],
  ["g e", "Experiments"],
  ["g f", "Flags"],
  ["g l", "Live events"],
  ["g v", "Events"],
  ["g s", "System status"],
  ["/", "Search on this page"],
  ["j", "Next row"],
  ["k", "Previous row"],
  ["Enter", "Open the row"],
  ["?", "Show these shortcuts"],
] as const

const AFTER_G: Record<string, string> = { e: "/experiments", f: "/flags", l: "/events/live", v: "/events", s: "/status" }
const SINGLE: Record<string, string> = { "?": "help", "/": "search", j: "next", k: "previous" }

/** What a key means after the one before it: a word, or where to go; null: nothing. */
export function shortcutOf(previous: string, key: string): string | null {
  if (previous === "g") return AFTER_G[key] ?? null
  return SINGLE[key] ?? null
}

/** The commands in whose text all words occur, in any order. */
export function matching(commands: readonly Command[], text: string): Command[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean)
  return commands.filter((command) => words.every((word) => `${command.kind} ${command.text}`.toLowerCase().includes(word)))
}

/** The commands with those before that are called as the text, or begin like it. */
export function exactFirst(text: string, commands: readonly Command[]): Command[] {
  const wanted = text.trim().toLowerCase()
  const rank = (command: Command) => {
    const name = command.text.toLowerCase()
    return name === wanted ? 0 : name.startsWith(wanted) ? 1 : 2
  }
  return wanted === "" ? [...commands] : [...commands].sort((a, b) => rank(a) - rank(b))
}
