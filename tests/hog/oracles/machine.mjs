// Runs Hog for the oracle suites: bytecode on the official virtual machine, and our JavaScript output.
//
// One request per line of standard input, one answer per line of standard output, both JSON:
//
//     {"machine": "official", "bytecode": [...], "globals": {...}, "answers": [...], "async": ["fetch"],
//      "given": ["lookup"], "corrected": false}
//     {"machine": "javascript", "code": "...", "globals": {...}}
//     {"machine": "expressions", "library": "function ...", "expressions": ["1 + 2"]}
//     {"result": "'text of the value'", "printed": [...], "calls": [["fetch", [...]]], "error": null}
//
// Functions named in "async" suspend and get the answers; those in "given" give their first argument back.
// The first argument is the folder of node packages, the second that of the JavaScript library.
import crypto from 'node:crypto'
import { createRequire } from 'node:module'
import path from 'node:path'
import readline from 'node:readline'
import { pathToFileURL } from 'node:url'
import vm from 'node:vm'

const TIMEOUT_MS = 5000
const [packages, library] = process.argv.slice(2)
const official = createRequire(path.join(packages, 'package.json'))('@posthog/hogvm')
const printer = await import(pathToFileURL(path.join(library, '__printHogValue.js')).href)
const show = (value) => printer.__printHogValue(value)

// Where hoglab means to do otherwise than this machine, the machine is corrected before it is compared with: each
// entry replaces library functions (spec: hog-language 9). The first argument of `fn` is the official function.
const sized = (a, b) => a - b
const byText = (a, b) => (String(a) < String(b) ? -1 : String(a) > String(b) ? 1 : 0)
const sorted = (items) => [...items].sort(items.every((item) => typeof item === 'number') ? sized : byText)
const passNull = (at) => (fn, args) => (args[at] === null ? null : fn(args))
const noneForNull = (fn, args) => (args[0] === null ? [] : fn(args))
const CORRECTIONS = {
    D4: {
        length: (fn, args) => (args[0] === null ? null : (fn(args) ?? null)), upper: passNull(0), lower: passNull(0), reverse: passNull(0), trim: passNull(0),
        trimLeft: passNull(0), trimRight: passNull(0), replaceOne: passNull(0), replaceAll: passNull(0),
        splitByString: passNull(1), keys: noneForNull, values: noneForNull,
    },
    D9: {
        arraySort: (fn, args) => (Array.isArray(args[0]) ? sorted(args[0]) : fn(args)),
        arrayReverseSort: (fn, args) => (Array.isArray(args[0]) ? sorted(args[0]).reverse() : fn(args)),
    },
}
const original = Object.fromEntries(Object.entries(official.STL).map(([name, { fn }]) => [name, fn]))

function correct(wanted) {
    for (const [name, entry] of Object.entries(official.STL)) {
        entry.fn = original[name]
    }
    for (const number of wanted ? Object.keys(CORRECTIONS) : []) {
        for (const [name, corrected] of Object.entries(CORRECTIONS[number])) {
            const fn = original[name]
            official.STL[name].fn = (args, ...rest) => corrected((given) => fn(given, ...rest), args)
        }
    }
}

const LIMITS = /^(Memory limit of|Execution timed out|Call stack exceeded|Exceeded maximum number of async)/

// RE2's inline flags at the start of a pattern, and its escapes of any punctuation; node has no RE2.
function regExp(given) {
    const pattern = String(given)
    const flags = /^\(\?([ims]+)\)/.exec(pattern)
    const rest = (flags ? pattern.slice(flags[0].length) : pattern).replace(/\\(.)/gs, (escape, character) =>
        "-,:;<>=!@#%&'\"`~ _".includes(character) ? character : escape
    )
    return new RegExp(rest, (flags?.[1] ?? '') + 'u')
}

const external = {
    crypto,
    regex: {
        match: (pattern, value) => regExp(pattern).test(value),
        extract: (pattern, value) => {
            const found = regExp(pattern).exec(value)
            return found ? (found[1] ?? found[0]) : ''
        },
    },
}

function failure(error) {
    const message = String(error?.message ?? error)
    return { kind: LIMITS.test(message) ? 'limit' : 'failure', text: message }
}

function thrown(error) {
    // the printer writes error values; without a payload it is absent, not null
    const value = { __hogError__: true, type: error.type, message: error.message, payload: error.payload }
    return { kind: 'throw', text: official.printHogValue(value) }
}

function runOfficial({ bytecode, globals, answers = [], async = [], given = [], corrected = false }) {
    correct(corrected)
    const asyncFunctions = Object.fromEntries(async.map((name) => [name, async () => null]))
    const functions = Object.fromEntries(given.map((name) => [name, (value) => value]))
    const options = { globals, asyncFunctions, functions, external, timeout: TIMEOUT_MS }
    const calls = []
    let next = bytecode
    for (;;) {
        const step = official.exec(next, options)
        if (step.error) {
            const uncaught = step.error instanceof official.UncaughtHogVMException
            return { calls, error: uncaught ? thrown(step.error) : failure(step.error) }
        }
        if (step.finished) {
            return { calls, result: official.printHogValue(step.result) }
        }
        calls.push([step.asyncFunctionName, step.asyncFunctionArgs])
        if (calls.length > answers.length) {
            return { calls, error: { kind: 'failure', text: 'No more answers' } }
        }
        next = JSON.parse(JSON.stringify(step.state)) // as a host does that keeps it in a queue
        next.stack.push(answers[calls.length - 1])
    }
}

function runJavaScript({ code, globals }) {
    globalThis.__getGlobal = (name) => {
        if (!Object.hasOwn(globals, name)) {
            throw new Error(`Global variable not found: ${name}`)
        }
        return structuredClone(globals[name])
    }
    try {
        const script = `(function () {"use strict"; ${code}\n})()`
        return { calls: [], result: show(vm.runInThisContext(script, { timeout: TIMEOUT_MS })) }
    } catch (error) {
        if (error?.__hogError__) {
            return { calls: [], error: { kind: 'throw', text: show(error) } }
        }
        const deep = error instanceof RangeError && /call stack/.test(error.message)
        return { calls: [], error: deep ? { kind: 'limit', text: error.message } : failure(error) }
    }
}

// Many expressions over one copy of the library; null for those that fail.
function evaluate({ library: declarations, expressions }) {
    const functions = expressions.map((code) => `() => ${code}`).join(',\n')
    const thunks = vm.runInThisContext(`(function () {"use strict"; ${declarations}\nreturn [${functions}]})()`)
    return thunks.map((thunk) => {
        try {
            return show(thunk())
        } catch (error) {
            return null
        }
    })
}

function answer(request) {
    const printed = []
    console.log = (...texts) => printed.push(texts.join(' '))
    if (request.machine === 'expressions') {
        return { results: evaluate(request) }
    }
    const run = request.machine === 'official' ? runOfficial : runJavaScript
    try {
        return { result: null, error: null, ...run(request), printed }
    } catch (error) {
        return { result: null, calls: [], printed, error: failure(error) }
    }
}

for await (const line of readline.createInterface({ input: process.stdin, crlfDelay: Infinity })) {
    process.stdout.write(`${JSON.stringify(answer(JSON.parse(line)))}\n`)
}
