import { __isNull } from './__isNull.js'
import { __toNumber } from './__toNumber.js'

export function range(startOrEnd, end) {
    const first = __isNull(end) ? 0 : __toNumber(startOrEnd)
    const last = __toNumber(__isNull(end) ? startOrEnd : end)
    const items = []
    const count = Math.floor(last - first)
    if (count > 10000000) {
        throw new Error('Function range would give more than 10000000 elements')
    }
    for (let step = 0; step < count; step++) {
        items.push(first + step)
    }
    return items
}
