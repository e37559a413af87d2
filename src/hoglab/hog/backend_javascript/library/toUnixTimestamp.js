import { __moment } from './__moment.js'
import { __zone } from './__zone.js'

export function toUnixTimestamp(value, zone) {
    const moment = __moment(value, __zone('toUnixTimestamp', zone))
    return moment === null ? null : moment.dt
}
