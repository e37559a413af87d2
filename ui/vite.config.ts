import { defineConfig } from "vitest/config"

// Everything is referenced relative to the document, whose <base href> the server fills in: a path prefix needs no other build.
export default defineConfig({
  base: "./",
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "../src/hoglab/ui/static",
    emptyOutDir: true,
    target: "es2022",
    cssCodeSplit: false,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    sourcemap: false,
    manifest: "chunks.json",
    reportCompressedSize: false,
    license: false,
  },
  test: { environment: "node", include: ["tests/**/*.test.ts"] },
})
