import { __expectDateTime } from './__expectDateTime.js'
import { __startOf } from './__startOf.js'
import { __toText } from './__toText.js'

export function dateTrunc(unit, moment) {
    const found = __expectDateTime(moment, ' for dateTrunc')
    if (['year', 'month', 'day', 'hour', 'minute'].indexOf(unit) < 0) {
        throw new Error('Unsupported unit for dateTrunc: ' + __toText(unit).slice(0, 50))
    }
    return __startOf(found, unit)
}
