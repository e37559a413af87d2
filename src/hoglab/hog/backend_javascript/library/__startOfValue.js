import { __expectMoment } from './__expectMoment.js'
import { __startOf } from './__startOf.js'

export function __startOfValue(value, unit) {
    const moment = __expectMoment(value)
    return moment === null ? null : __startOf(moment, unit)
}
