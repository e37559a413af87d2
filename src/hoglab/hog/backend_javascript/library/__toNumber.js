import { __isNull } from './__isNull.js'
import { __toText } from './__toText.js'

// A value as a number: null is 0, text is read whole, containers are NaN unless an array's text is a number.
export function __toNumber(value) {
    if (__isNull(value)) {
        return 0
    }
    if (typeof value === 'object' || typeof value === 'function') {
        return Array.isArray(value) ? Number(__toText(value)) : NaN
    }
    return Number(value)
}
