import { __getNestedValue } from './__getNestedValue.js'
import { __toText } from './__toText.js'

export function JSONExtractInt(json, ...path) {
    const number = parseInt(__toText(__getNestedValue(json, path, true)))
    return isNaN(number) ? null : number
}
