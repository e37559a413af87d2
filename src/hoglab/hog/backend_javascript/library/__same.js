import { __isNull } from './__isNull.js'

// Whether two values are the same, without any conversion.
export function __same(left, right) {
    return left === right || (__isNull(left) && __isNull(right))
}
