import { __isHogDateTime } from './__isHogDateTime.js'

export function __expectDateTime(value, purpose) {
    if (!__isHogDateTime(value)) {
        throw new Error('Expected a DateTime' + purpose)
    }
    return value
}
