import { __toNumber } from './__toNumber.js'

export function floor(value) {
    return Math.floor(__toNumber(value))
}
