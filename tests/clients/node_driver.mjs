// Drives posthog-node as a test tells it to: one JSON request per line on stdin, one JSON answer per line on stdout.
// Arguments: the folder of node_modules, and the package when it is not the current one.

import { createRequire } from "node:module"
import { serve } from "./driver.mjs"

const [folder, name = "posthog-node"] = process.argv.slice(2)
const { PostHog } = createRequire(`${folder}/`)(name)

const clients = []

const operations = {
  // With definitions the client evaluates on its own and asks nobody: this is how processes share what one fetched.
  open({ token, options, definitions }) {
    if (definitions) {
      options.flagDefinitionCacheProvider = {
        getFlagDefinitions: () => definitions,
        shouldFetchFlagDefinitions: () => false,
        onFlagDefinitionsReceived: () => {},
        shutdown: () => {},
      }
    }
    const client = new PostHog(token, options)
    const seen = { client, errors: [], flushed: [] }
    client.on("error", (error) => {
      const dropped = (error?.drops ?? []).map(({ details }) => details)
      seen.errors.push([error?.status ?? error, ...dropped].join(" "))
    })
    client.on("flush", (messages) => seen.flushed.push(...messages))
    return clients.push(seen) - 1
  },

  // Call a method that may answer with a promise, once for each list of arguments, one after the other.
  async call({ client, method, calls }) {
    const answers = []
    for (const args of calls) answers.push((await clients[client].client[method](...args)) ?? null)
    return answers
  },

  // All at once, as a server under load does.
  async together({ client, method, calls }) {
    return Promise.all(calls.map((args) => clients[client].client[method](...args)))
  },

  // Values of many flags for many people, in one answer: [[value of flag 1, …], …], null where undecided.
  async evaluate({ client, keys, people }) {
    const rows = []
    for (const { distinctId, options } of people) {
      const found = await clients[client].client.getAllFlags(distinctId, options)
      rows.push(keys.map((key) => found[key] ?? null))
    }
    return rows
  },

  // What the SDK believes: what it sent, what failed, what it has still to send.
  state({ client }) {
    const { client: sdk, errors, flushed } = clients[client]
    return { errors, sent: flushed, queued: (sdk.getPersistedProperty("queue") ?? []).length }
  },
}

await serve(operations)
process.exit(0) // clients that were not shut down would go on polling
