import { __getNestedValue } from './__getNestedValue.js'

export function JSONExtract(json, ...pathAndType) {
    return __getNestedValue(json, pathAndType.slice(0, -1), true)
}
