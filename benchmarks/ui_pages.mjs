// Loads pages of a server in Chromium, on a slowed processor and line, and says how long they took and what they asked for.
// Arguments: the folder of node_modules, the browser, and JSON: {url, link, experiment, token, runs, seconds}.
// Writes one line of JSON.

import { createRequire } from "node:module"

const [folder, executablePath, given] = process.argv.slice(2)
const { url, link, experiment, token, runs, seconds } = JSON.parse(given)
const { chromium } = createRequire(`${folder}/`)("playwright-core")

const SLOWER = 4
const LINE = { offline: false, latency: 40, downloadThroughput: 1_250_000, uploadThroughput: 1_250_000 }
const RESULTS = `${url}/ui/p/1/experiments/${experiment}`
const PLOTS = "svg.forest[data-effect]"
const DOCS = `${url}/api/docs/`
const LAST = "#schemas"
const BATCH = 500
const PER_SECOND = 2000

const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu", "--no-first-run"] })

// The policy of the pages lets playwright's own way of waiting evaluate nothing.
async function until(page, condition) {
  const deadline = Date.now() + 60_000
  while (!(await page.evaluate(condition))) {
    if (Date.now() > deadline) throw new Error(`never: ${condition}`)
    await new Promise((done) => setTimeout(done, 50))
  }
}

async function slowed(context) {
  const page = await context.newPage()
  const tools = await context.newCDPSession(page)
  await tools.send("Network.emulateNetworkConditions", LINE)
  await tools.send("Emulation.setCPUThrottlingRate", { rate: SLOWER })
  return page
}

// What the browser measured of the page, once `selector` is there.
async function load(page, address, selector) {
  await page.goto(address, { waitUntil: "commit" })
  await page.waitForSelector(selector, { timeout: 60_000, state: "attached" })
  return page.evaluate(async (plots) => {
    const complete = performance.now()
    await new Promise((done) => setTimeout(done, 300))
    const entries = (type) =>
      new Promise((done) => {
        const observer = new PerformanceObserver((list) => done(list.getEntries()))
        observer.observe({ type, buffered: true })
        setTimeout(() => done([]), 200)
      })
    const painted = (await entries("largest-contentful-paint")).at(-1)
    const shifts = await entries("layout-shift")
    const first = performance.getEntriesByName("first-contentful-paint")[0]
    const asked = performance.getEntriesByType("resource")
    const [document_] = performance.getEntriesByType("navigation")
    const sum = (list) => list.reduce((total, each) => total + each.encodedBodySize, 0)
    return {
      first: first?.startTime ?? null,
      largest: painted?.startTime ?? null,
      complete,
      shift: shifts.reduce((total, each) => total + (each.hadRecentInput ? 0 : each.value), 0),
      requests: asked.filter((each) => each.initiatorType === "fetch").length,
      all: document_.encodedBodySize + sum(asked),
      script: sum(asked.filter((each) => /\.js($|\?)/.test(each.name))),
      style: sum(asked.filter((each) => /\.css($|\?)/.test(each.name))),
    }
  }, selector)
}

const profile = await browser.newContext()
const first = await profile.newPage()
await first.goto(link)
await first.waitForSelector(".side nav")
const storageState = await profile.storageState()

const found = { docs: [], results: [], docsWarm: [], resultsWarm: [], details: [], live: [] }
for (let run = 0; run < runs; run += 1)
  for (const [name, address, selector] of [["docs", DOCS, LAST], ["results", RESULTS, PLOTS]]) {
    const context = await browser.newContext({ storageState })
    const page = await slowed(context)
    found[name].push(await load(page, address, selector))
    found[`${name}Warm`].push(await load(page, address, selector))
    if (name === "results") {
      // From the answer of the details to what is made of it.
      await page.evaluate(() => {
        const timer = setInterval(() => {
          const answer = performance.getEntriesByType("resource").filter((each) => each.name.includes("timeseries_results")).at(-1)
          if (!answer || !document.querySelector(".detail-grid") || document.querySelector(".detail-grid .skeleton")) return
          clearInterval(timer)
          window.opened = performance.now() - answer.responseEnd
        }, 4)
        performance.clearResourceTimings()
        document.querySelector(".metric-name button").click()
      })
      await until(page, "window.opened !== undefined")
      found.details.push(await page.evaluate("window.opened"))
    }
    await context.close()
  }

// A flood of events on the page that follows them: how long an input would wait for its turn.
const live = await profile.newPage()
await live.goto(`${url}/ui/p/1/events/live`)
await until(live, "document.body.innerText.includes('Connected.')")
let flooding = true
const flood = (async () => {
  for (let at = 0; flooding; at += 1) {
    const batch = Array.from({ length: BATCH }, (_, number) => ({ event: "flood", distinct_id: `flood-${at}-${number}`, properties: {} }))
    const turn = new Promise((done) => setTimeout(done, (1000 * BATCH) / PER_SECOND))
    await fetch(`${url}/batch/`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ api_key: token, batch }) })
    await turn
  }
})()
await until(live, "document.body.innerText.includes('skipped, to keep this page usable')")
const end = Date.now() + 1000 * seconds
while (Date.now() < end)
  found.live.push(
    await live.evaluate(
      () =>
        new Promise((done) => {
          const began = performance.now()
          const field = document.querySelector("input[type=search]")
          field.dispatchEvent(new InputEvent("input", { bubbles: true }))
          requestAnimationFrame(() => setTimeout(() => done(performance.now() - began)))
        }),
    ),
  )
flooding = false
await flood
found.rows = await live.evaluate("document.querySelectorAll('tbody tr').length")
await browser.close()
console.log(JSON.stringify(found))
