import { __isNull } from './__isNull.js'

export function ifNull(value, otherwise) {
    return __isNull(value) ? otherwise : value
}
