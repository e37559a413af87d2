import { __isDict } from './__isDict.js'
import { __isNull } from './__isNull.js'

export function empty(value) {
    if (Array.isArray(value) || typeof value === 'string') {
        return value.length === 0
    }
    return __isNull(value) || (__isDict(value) && Object.keys(value).length === 0)
}
