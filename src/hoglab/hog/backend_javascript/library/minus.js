import { __toNumber } from './__toNumber.js'

export function minus(left, right) {
    return __toNumber(left) - __toNumber(right)
}
