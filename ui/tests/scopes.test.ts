import { expect, it } from "vitest"
import { OBJECTS, PRESETS, scopesOf, scopesText } from "../src/settings/scopes"

it("scopes read as sentences", () => {
  expect(scopesText(["*"])).toBe("Everything that you may do.")
  expect(scopesText([])).toBe("Nothing.")
  expect(scopesText(["experiment:write", "experiment:read", "feature_flag:read", "user:read"])).toBe("Read and change experiments. Read feature flags and users.")
  expect(scopesText(["cohort:write", "cohort:read", "person:write", "query:read"])).toBe("Read and change cohorts and people. Read events and results.")
  expect(scopesText(["llm_gateway:read"])).toBe("Also llm_gateway:read.")
  expect(scopesText(OBJECTS.map((kind) => `${kind}:read`))).toBe("Read everything.")
})

it("every preset has a sentence that names each of its kinds", () => {
  for (const [key, , choice] of PRESETS) {
    const text = scopesText(scopesOf(choice))
    expect([key, text]).not.toContain("Nothing.")
    expect(text).not.toContain("Also")
    expect(text).not.toContain("_")
  }
})
