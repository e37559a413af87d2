import { __getNestedValue } from './__getNestedValue.js'
import { __toText } from './__toText.js'

export function JSONExtractFloat(json, ...path) {
    const number = parseFloat(__toText(__getNestedValue(json, path, true)))
    return isNaN(number) ? null : number
}
