import { __isNull } from './__isNull.js'
import { __toNumber } from './__toNumber.js'
import { __toText } from './__toText.js'

export function plus(left, right) {
    const joins = (value) => !__isNull(value) && typeof value !== 'number' && typeof value !== 'boolean'
    if (joins(left) || joins(right)) {
        return __toText(left) + __toText(right)
    }
    return __toNumber(left) + __toNumber(right)
}
