import { __isNull } from './__isNull.js'

export function has(items, value) {
    if (!Array.isArray(items)) {
        return false
    }
    return __isNull(value) ? items.some(__isNull) : items.includes(value)
}
