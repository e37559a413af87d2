import { __isHogDateTime } from './__isHogDateTime.js'
import { __isNull } from './__isNull.js'
import { __moment } from './__moment.js'
import { __toHogDateTime } from './__toHogDateTime.js'
import { __zone } from './__zone.js'

export function toDateTime(value, zone) {
    const name = __zone('toDateTime', zone)
    if (typeof value === 'number') {
        return __toHogDateTime(value, name)
    }
    if (__isHogDateTime(value)) {
        return __isNull(zone) ? value : __toHogDateTime(value.dt, name)
    }
    const moment = __moment(value, name)
    return moment === null ? null : __toHogDateTime(moment.dt, name)
}
