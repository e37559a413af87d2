import { __isNull } from './__isNull.js'
import { __toNumber } from './__toNumber.js'

export function substring(text, start, length) {
    const first = __toNumber(start)
    const count = __isNull(length) ? Infinity : __toNumber(length)
    if (typeof text !== 'string' || !(first >= 1) || !(count >= 0)) {
        return ''
    }
    return text.slice(Math.floor(first - 1), Math.floor(first - 1 + Math.min(count, text.length)))
}
