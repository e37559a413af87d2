import { __isDict } from './__isDict.js'
import { __isNull } from './__isNull.js'

// A value that is no array as JavaScript's own String() has it for Hog values.
export function __scalarText(value) {
    if (typeof value === 'string') {
        return value
    }
    if (__isNull(value)) {
        return 'null'
    }
    if (typeof value === 'object' || typeof value === 'function') {
        return __isDict(value) ? '[object Map]' : '[object Object]'
    }
    return String(value)
}
