// Texts that become files of the browser's user.

/** Let the browser save a text under a name. */
export function saveAs(text: string, name: string, type: string): void {
  const url = URL.createObjectURL(new Blob([text], { type: `${type};charset=utf-8` }))
  const link = document.createElement("a")
  link.href = url
  link.download = name
  link.click()
  URL.revokeObjectURL(url)
}

/** A row of a CSV file. A text that a spreadsheet would take for a formula gets an apostrophe. */
export function csvRow(cells: readonly (string | number | null)[]): string {
  return cells.map(csvCell).join(",")
}

function csvCell(cell: string | number | null): string {
  if (cell === null) return ""
  if (typeof cell === "number") return String(cell)
  const text = /^[=+\-@\t\r]/.test(cell) ? `'${cell}` : cell
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
}
