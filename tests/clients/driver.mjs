// What node processes of the tests have in common: a line of JSON asks for an operation, a line of JSON answers.

import { createInterface } from "node:readline"

// Answers until standard input ends; what an operation throws is its answer too.
export async function serve(operations) {
  for await (const line of createInterface({ input: process.stdin })) {
    const { operation, ...parameters } = JSON.parse(line)
    let answer
    try {
      answer = { result: (await operations[operation](parameters)) ?? null }
    } catch (error) {
      answer = { error: String(error?.stack ?? error) }
    }
    process.stdout.write(`${JSON.stringify(answer)}\n`)
  }
}
