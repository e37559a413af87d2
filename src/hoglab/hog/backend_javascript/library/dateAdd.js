import { __shifted } from './__shifted.js'
import { __toText } from './__toText.js'

export function dateAdd(unit, amount, value) {
    if (['day', 'week', 'hour', 'minute', 'second', 'month', 'year'].indexOf(unit) < 0) {
        throw new Error('Unsupported interval unit: ' + __toText(unit).slice(0, 50))
    }
    return __shifted(unit, amount, value)
}
