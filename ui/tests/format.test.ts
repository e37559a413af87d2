import { describe, expect, it } from "vitest"
import { clipped, counted, effectText, general, intervalText, meanText, numberText, percentText, pText, safeLink, visible } from "../src/lib/format"

const relative = { relative: true, isShare: false }

describe("numbers are those of the terminal, with a real minus sign", () => {
  it.each([
    [0.3682, relative, "+36.8%"],
    [-0.039, relative, "−3.9%"],
    [0, relative, "0%"],
    [0.0231, { relative: false, isShare: true }, "+2.31 pp"],
    [-12.34567, { relative: false, isShare: false }, "−12.35"],
    [0, { relative: false, isShare: true }, "0 pp"],
  ] as const)("effect %d", (effect, style, text) => expect(effectText(effect, style)).toBe(text))

  it.each([
    [null, "–"], [2972, "2,972"], [6.0271, "6.027"], [0.058881, "0.05888"], [43.3749, "43.37"], [9231.43, "9,231"], [12351.7, "12,352"],
    [-3, "−3"], [0.00001234567, "1.235e−05"], [1_000_000, "1,000,000"],
  ])("number %d", (value, text) => expect(numberText(value)).toBe(text))

  it("shares, p-values and probabilities are never certain", () => {
    expect(meanText(0.139, true)).toBe("13.90%")
    expect(pText(0.00001)).toBe("p < 0.0001")
    expect(pText(0.0123)).toBe("p = 0.012")
    expect(percentText(0.99999)).toBe("> 99.9%")
    expect(percentText(0.00001)).toBe("< 0.1%")
    expect(percentText(1)).toBe("100.0%")
    expect(intervalText([0.21, 0.527], relative)).toBe("+21.0% … +52.7%")
    expect(intervalText([0.21, Infinity], relative)).toBe("+21.0% or more")
    expect(intervalText([-Infinity, 0.527], relative)).toBe("+52.7% or less")
    expect(intervalText([-Infinity, Infinity], relative)).toBe("no bounds")
    expect(counted(1, "person", "people")).toBe("1 person")
    expect(counted(1201, "event")).toBe("1,201 events")
  })

  it("general drops zeros at the end but no others", () => {
    expect(general(100, 4)).toBe("100")
    expect(general(0.1, 2)).toBe("0.1")
    expect(general(9.9999, 2)).toBe("10")
  })
})

describe("texts of others", () => {
  it("what is invisible or turns text around is shown as an escape", () => {
    expect(visible("a\u202eb\u0000\u200b")).toBe("a\\u202eb\\u0000\\u200b")
    expect(visible("line\nbreak\ttab Ünï 日本")).toBe("line\nbreak\ttab Ünï 日本")
  })
  it("long ones are cut", () => expect(clipped("x".repeat(10_000)).length).toBe(2001))
  it("only addresses of the web are links", () => {
    expect(safeLink("https://example.com/a")).not.toBeNull()
    for (const text of ["javascript:alert(1)", " javascript:alert(1)", "data:text/html,x", "//example.com", "vbscript:x"]) expect(safeLink(text)).toBeNull()
  })
})
