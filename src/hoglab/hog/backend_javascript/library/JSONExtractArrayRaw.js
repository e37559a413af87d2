import { __getNestedValue } from './__getNestedValue.js'

export function JSONExtractArrayRaw(json, ...path) {
    const found = __getNestedValue(json, path, true)
    return Array.isArray(found) ? found : null
}
