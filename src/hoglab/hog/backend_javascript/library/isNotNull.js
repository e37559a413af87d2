import { __isNull } from './__isNull.js'

export function isNotNull(value) {
    return !__isNull(value)
}
