import { __toNumber } from './__toNumber.js'

export function round(value) {
    return Math.round(__toNumber(value))
}
