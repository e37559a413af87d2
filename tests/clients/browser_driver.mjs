// Drives pages in a real Chromium as a test tells it to: one JSON request per line on stdin, one JSON answer per line
// on stdout. Arguments: the folder of node_modules, the browser, a host name that leads to this machine.

import { readFileSync } from "node:fs"
import { createRequire } from "node:module"
import { serve } from "./driver.mjs"

const [folder, executablePath, host] = process.argv.slice(2)
const { chromium } = createRequire(`${folder}/`)("playwright-core")

// A person's browser, not a robot's: SDKs drop the events of those.
const USER_AGENT =
  "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36"

const browser = await chromium.launch({
  executablePath,
  args: [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-blink-features=AutomationControlled",
    `--user-agent=${USER_AGENT}`,
    `--host-resolver-rules=MAP ${host} 127.0.0.1`,
  ],
})

const AXE = readFileSync(`${folder}/axe-core/axe.min.js`, "utf8")
const WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]

// For a machine with many times as much to do as it can: nothing that works waits for it.
const PATIENCE_MS = 240_000

// Playwright waits for a promise of the page for ever.
function inTime(promise) {
  let timer
  const late = new Promise((_, refuse) => {
    timer = setTimeout(() => refuse(new Error("the page did not answer in time")), PATIENCE_MS)
  })
  return Promise.race([promise, late]).finally(() => clearTimeout(timer))
}

const pages = []

function watch(page) {
  const seen = { page, errors: [], warnings: [], requests: [] }
  page.on("console", (message) => message.type() === "error" && seen.errors.push(message.text()))
  page.on("console", (message) => message.type() === "warning" && seen.warnings.push(message.text()))
  page.on("pageerror", (error) => seen.errors.push(String(error)))
  page.on("requestfailed", (request) => note(request, 0))
  page.on("response", (response) => note(response.request(), response.status()))
  const note = (request, status) =>
    seen.requests.push({
      method: request.method(),
      url: request.url(),
      kind: request.resourceType(),
      headers: request.headers(),
      status,
    })
  return pages.push(seen) - 1
}

const operations = {
  // A page in a browser profile of its own, or in that of another page (`like`). `profile`: playwright's options of one.
  async open({ url, like, userAgent, profile = {} }) {
    const context =
      like === undefined
        ? await browser.newContext(userAgent ? { userAgent, ...profile } : profile)
        : pages[like].page.context()
    context.setDefaultTimeout(PATIENCE_MS)
    const page = await context.newPage()
    const id = watch(page)
    await page.goto(url, { waitUntil: "load" })
    return id
  },
  async go({ page, url }) {
    await pages[page].page.goto(url, { waitUntil: "load" })
  },
  async click({ page, selector }) {
    await pages[page].page.click(selector)
  },
  async fill({ page, selector, text }) {
    await pages[page].page.fill(selector, text)
  },
  async choose({ page, selector, text }) {
    await pages[page].page.selectOption(selector, { label: text })
  },
  // Call a function of one argument, given as text, in the page.
  async run({ page, code, argument }) {
    return inTime(pages[page].page.evaluate(`(${code})(${JSON.stringify(argument)})`))
  },
  // The first value of such a function that is truthy.
  async wait({ page, code, argument }) {
    const found = await pages[page].page.waitForFunction(`(${code})(${JSON.stringify(argument)})`, null, {
      timeout: PATIENCE_MS,
    })
    return found.jsonValue()
  },
  // Keys as playwright names them: "Control+k", or a single one; with a selector the element has the focus before.
  async press({ page, key, selector }) {
    if (selector) await pages[page].page.focus(selector)
    await pages[page].page.keyboard.press(key)
  },
  async type({ page, text }) {
    await pages[page].page.keyboard.type(text)
  },
  async look({ page, colorScheme, width, height }) {
    await pages[page].page.emulateMedia({ colorScheme, reducedMotion: "reduce", media: "screen" })
    await pages[page].page.setViewportSize({ width, height })
  },
  // Requests whose paths end so get no answer until they are released.
  async hold({ page, part }) {
    await pages[page].page.route(({ pathname }) => pathname.endsWith(part), () => undefined)
  },
  // They are answered by a failure, as of a proxy whose server is away.
  async refuse({ page, part, status }) {
    await pages[page].page.route(({ pathname }) => pathname.endsWith(part), (route) => route.fulfill({ status }))
  },
  async release({ page }) {
    await pages[page].page.unrouteAll()
  },
  async paper({ page }) {
    await pages[page].page.emulateMedia({ media: "print" })
  },
  async back({ page }) {
    await pages[page].page.goBack({ waitUntil: "load" })
  },
  async reload({ page }) {
    await pages[page].page.reload({ waitUntil: "load" })
  },
  async cookies({ page }) {
    return pages[page].page.context().cookies()
  },
  async screenshot({ page, path }) {
    await pages[page].page.screenshot({ path, fullPage: true })
  },
  // What axe-core finds against WCAG 2.0 to 2.2, A and AA; or what single rules of it find.
  async axe({ page, rules = [] }) {
    const { page: tab } = pages[page]
    if (!(await tab.evaluate("typeof axe === 'object'"))) await tab.evaluate(AXE)
    const { violations } = await inTime(tab.evaluate(`axe.run(document, { runOnly: ${JSON.stringify(rules.length ? rules : WCAG)} })`))
    return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 160)).join(" | ")}`)
  },
  seen({ page }) {
    const { errors, warnings, requests } = pages[page]
    return { errors, warnings, requests }
  },
  async content({ page }) {
    return pages[page].page.content()
  },
  async end({ page }) {
    await pages[page].page.close()
  },
  async close({ page }) {
    await pages[page].page.context().close()
  },
}

await serve(operations)
await browser.close()
