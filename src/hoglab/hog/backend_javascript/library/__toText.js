import { __isDict } from './__isDict.js'
import { __isNull } from './__isNull.js'
import { __join } from './__join.js'

// A value as JavaScript's own String() has it for Hog values: arrays are joined with commas.
export function __toText(value) {
    if (typeof value === 'string') {
        return value
    }
    if (__isNull(value)) {
        return 'null'
    }
    if (Array.isArray(value)) {
        return __join(value, ',', [])
    }
    if (typeof value === 'object' || typeof value === 'function') {
        return __isDict(value) ? '[object Map]' : '[object Object]'
    }
    return String(value)
}
