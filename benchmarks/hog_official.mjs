// Times programs on the official virtual machine for `hog_programs.py`.
//
// One request per line of standard input, one answer per line of standard output, both JSON:
//
//     {"program": {"bytecode": [...], "globals": {...}, "answer": null, "waits": false}, "seconds": 0.1}
//     {"us": 12.5, "result": 42}
//
// `answer` is what fetch gives: at once, or (`waits`) after the machine has stopped, handed over its state and been
// started again. The state does not go through JSON text here. The argument is the folder of node packages.
import crypto from 'node:crypto'
import { createRequire } from 'node:module'
import path from 'node:path'
import readline from 'node:readline'

const official = createRequire(path.join(process.argv[2], 'package.json'))('@posthog/hogvm')

const patterns = new Map()
function match(pattern, text) {
    if (!patterns.has(pattern)) {
        const ignoreCase = pattern.startsWith('(?i)')
        patterns.set(pattern, ignoreCase ? new RegExp(pattern.slice(4), 'iu') : new RegExp(pattern, 'u'))
    }
    return patterns.get(pattern).test(text)
}

function runner({ bytecode, globals, answer, waits }) {
    const host = waits ? { asyncFunctions: { fetch: async () => answer } } : { functions: { fetch: () => answer } }
    const options = { globals, timeout: 60_000, external: { crypto, regex: { match } }, ...host }
    return () => {
        let step = official.exec(bytecode, options)
        while (!step.finished && !step.error) {
            step.state.stack.push(answer)
            step = official.exec(step.state, options)
        }
        if (step.error) {
            throw step.error
        }
        return step.result
    }
}

// The best of five batches, after as long a warm-up.
function bestUs(run, seconds) {
    const until = process.hrtime.bigint() + BigInt(Math.round(seconds * 1e9))
    let count = 0
    do {
        run()
        count++
    } while (process.hrtime.bigint() < until)
    const batch = Math.max(1, Math.round(count / 5))
    let best = Infinity
    for (let round = 0; round < 5; round++) {
        const started = process.cpuUsage()
        for (let i = 0; i < batch; i++) {
            run()
        }
        const { user, system } = process.cpuUsage(started)
        best = Math.min(best, (user + system) / batch)
    }
    return best
}

for await (const line of readline.createInterface({ input: process.stdin, crlfDelay: Infinity })) {
    const { program, seconds } = JSON.parse(line)
    const run = runner(program)
    const result = run() ?? null
    process.stdout.write(`${JSON.stringify({ us: bestUs(run, seconds), result })}\n`)
}
