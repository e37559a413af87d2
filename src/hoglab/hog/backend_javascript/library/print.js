import { __printHogStringOutput } from './__printHogStringOutput.js'

export function print(...values) {
    console.log(values.map((value) => __printHogStringOutput(value)).join(' '))
    return null
}
