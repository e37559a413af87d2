import { __printHogValue } from './__printHogValue.js'

// A value as `print` writes it: texts as they are.
export function __printHogStringOutput(value) {
    return typeof value === 'string' ? value : __printHogValue(value)
}
