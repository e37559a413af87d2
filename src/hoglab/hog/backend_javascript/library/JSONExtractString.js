import { __getNestedValue } from './__getNestedValue.js'
import { __isDict } from './__isDict.js'
import { __toText } from './__toText.js'
import { jsonStringify } from './jsonStringify.js'

export function JSONExtractString(json, ...path) {
    const found = __getNestedValue(json, path, true)
    const holds = (value) => Array.isArray(value) || __isDict(value)
    if (found === null) {
        return null
    }
    return __isDict(found) || (Array.isArray(found) && found.some(holds)) ? jsonStringify(found) : __toText(found)
}
