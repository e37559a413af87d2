// Drives pages in a real Chromium as a test tells it to: one JSON request per line on stdin, one JSON answer per line
// on stdout. Arguments: the folder of node_modules, the browser, a host name that leads to this machine.

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

const PATIENCE_MS = 20_000

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
  const seen = { page, errors: [], requests: [] }
  page.on("console", (message) => message.type() === "error" && seen.errors.push(message.text()))
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
  // A page in a browser profile of its own, or in that of another page (`like`).
  async open({ url, like, userAgent }) {
    const context =
      like === undefined ? await browser.newContext(userAgent ? { userAgent } : {}) : pages[like].page.context()
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
  seen({ page }) {
    const { errors, requests } = pages[page]
    return { errors, requests }
  },
  async close({ page }) {
    await pages[page].page.context().close()
  },
}

await serve(operations)
await browser.close()
