// Writes static/manifest.json: what the build was made of and what came out, as SHA-256, and which chunk imports which.
// `src/hoglab/ui/assets.py` does not read it; `tests/ui/test_build.py` compares it with the tree, without npm.

import { createHash } from "node:crypto"
import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { join, relative } from "node:path"
import { fileURLToPath } from "node:url"

const ui = fileURLToPath(new URL("..", import.meta.url))
const out = join(ui, "../src/hoglab/ui/static")
const GENERATED = "src/api/schema.d.ts"

const hash = (path) => createHash("sha256").update(readFileSync(path)).digest("hex")
const files = (folder) =>
  readdirSync(folder, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
const hashes = (root, paths) =>
  Object.fromEntries(
    paths
      .map((path) => [relative(root, path).replaceAll("\\", "/"), path])
      .filter(([name]) => name !== GENERATED)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([name, path]) => [name, hash(path)]),
  )

const graph = JSON.parse(readFileSync(join(out, "chunks.json"), "utf8"))
rmSync(join(out, "chunks.json"))
rmSync(join(out, "manifest.json"), { force: true })
const chunks = Object.fromEntries(
  Object.values(graph)
    .filter((chunk) => chunk.file.endsWith(".js"))
    .map((chunk) => [chunk.file, { source: chunk.src ?? null, imports: (chunk.imports ?? []).map((key) => graph[key].file) }])
    .sort(([a], [b]) => (a < b ? -1 : 1)),
)
const configuration = ["index.html", "package.json", "package-lock.json", "tsconfig.json", "vite.config.ts", "scripts/manifest.mjs"]
const inputs = hashes(ui, [...files(join(ui, "src")), ...configuration.map((name) => join(ui, name))])
const outputs = hashes(out, files(out))
writeFileSync(join(out, "manifest.json"), `${JSON.stringify({ inputs, outputs, chunks }, null, 1)}\n`)
