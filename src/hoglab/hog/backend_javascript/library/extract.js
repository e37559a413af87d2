import { __clockOf } from './__clockOf.js'
import { __toText } from './__toText.js'

export function extract(part, value) {
    if (['year', 'month', 'day', 'hour', 'minute', 'second'].indexOf(part) < 0) {
        throw new Error('Unknown extract part: ' + __toText(part).slice(0, 50))
    }
    const clock = __clockOf(value)
    return clock === null ? null : clock[part]
}
