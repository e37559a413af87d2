// The house rules of the sources, read from their syntax trees: sizes, layers, and what is never written.

import { readdirSync, readFileSync } from "node:fs"
import { join, relative } from "node:path"
import { fileURLToPath } from "node:url"
import ts from "typescript"

const SOURCE = fileURLToPath(new URL("../src", import.meta.url))
const MAX_LINES = 300
const MAX_TOTAL = 12_000
const MAX_PACKAGES = 25
const GENERATED = "api/schema.d.ts"
// Each folder may import those after it; screens are all other folders.
const LAYERS = ["app", "screens", "filters", "plots", "kit", "api", "lib"]
const BESIDE = new Map([["api", new Set(["lib"])], ["plots", new Set(["kit", "lib"])]])
const CAMEL_SVG = new Set(
  ("textAnchor strokeWidth strokeDasharray strokeLinecap strokeLinejoin strokeOpacity fillOpacity fillRule clipPath clipRule stopColor " +
    "dominantBaseline fontSize fontWeight className htmlFor tabIndex autoFocus autoComplete spellCheck colSpan rowSpan maxLength readOnly").split(" "),
)
const DANGEROUS = new Set(["innerHTML", "outerHTML", "dangerouslySetInnerHTML", "insertAdjacentHTML", "srcdoc"])

const faults = []
let total = 0

function layerOf(path) {
  const folder = path.includes("/") ? path.split("/")[0] : "app"
  return LAYERS.includes(folder) ? folder : "screens"
}

function checkImport(path, at, target) {
  if (!target.startsWith(".")) return
  const to = relative(SOURCE, join(SOURCE, path, "..", target))
  const [from, into] = [layerOf(path), layerOf(to)]
  const fine =
    from === into
      ? from !== "screens" || path.split("/")[0] === to.split("/")[0]
      : BESIDE.has(from)
        ? BESIDE.get(from).has(into)
        : LAYERS.indexOf(from) < LAYERS.indexOf(into)
  if (!fine) faults.push(`${path}:${at} ${from} may not import ${to}`)
}

function check(path) {
  const text = readFileSync(join(SOURCE, path), "utf8")
  const lines = text.split("\n").length - 1
  total += lines
  if (lines > MAX_LINES) faults.push(`${path} has ${lines} lines, more than ${MAX_LINES}`)
  if (path.endsWith(".css")) return
  const file = ts.createSourceFile(path, text, ts.ScriptTarget.Latest, true)
  const look = (node) => {
    const at = file.getLineAndCharacterOfPosition(node.getStart()).line + 1
    const fault = (what) => faults.push(`${path}:${at} ${what}`)
    if (node.kind === ts.SyntaxKind.AnyKeyword) fault("any")
    if (ts.isNonNullExpression(node)) fault("a non-null assertion")
    if (ts.isExportAssignment(node)) fault("a default export that is no function of a screen")
    if (ts.isFunctionDeclaration(node) && node.modifiers?.some((m) => m.kind === ts.SyntaxKind.DefaultKeyword) && layerOf(path) !== "screens")
      fault("a default export outside of screens")
    if ((ts.isIdentifier(node) || ts.isStringLiteral(node)) && DANGEROUS.has(node.text)) fault(node.text)
    if (ts.isJsxAttribute(node) && CAMEL_SVG.has(node.name.getText())) fault(`${node.name.getText()}: use the attribute's real name`)
    if (ts.isJsxAttribute(node) && node.name.getText() === "style") fault("a style attribute: use a class, or the property in an effect")
    if ((ts.isImportDeclaration(node) || ts.isExportDeclaration(node)) && node.moduleSpecifier) checkImport(path, at, node.moduleSpecifier.text)
    ts.forEachChild(node, look)
  }
  look(file)
}

for (const entry of readdirSync(SOURCE, { withFileTypes: true, recursive: true })) {
  const path = relative(SOURCE, join(entry.parentPath, entry.name))
  if (entry.isFile() && /\.(tsx?|css)$/.test(path) && path !== GENERATED) check(path)
}
if (total > MAX_TOTAL) faults.push(`${total} lines of source, more than ${MAX_TOTAL}`)
const lock = JSON.parse(readFileSync(join(SOURCE, "../package-lock.json"), "utf8"))
const shipped = Object.entries(lock.packages).filter(([name, each]) => name && !each.dev && !each.devOptional && !each.optional && !each.peer)
if (shipped.length > MAX_PACKAGES) faults.push(`${shipped.length} packages at run time, more than ${MAX_PACKAGES}`)

console.log(`${total} lines of source, ${shipped.length} packages at run time`)
if (faults.length) {
  console.error(faults.join("\n"))
  process.exit(1)
}
