import { __isNull } from './__isNull.js'

export function isNull(value) {
    return __isNull(value)
}
