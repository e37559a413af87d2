import { __getNestedValue } from './__getNestedValue.js'
import { __isDict } from './__isDict.js'

export function JSONLength(json, ...path) {
    const found = __getNestedValue(json, path, true)
    return Array.isArray(found) ? found.length : __isDict(found) ? Object.keys(found).length : 0
}
