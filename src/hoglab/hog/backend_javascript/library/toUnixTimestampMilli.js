import { __moment } from './__moment.js'
import { __zone } from './__zone.js'

export function toUnixTimestampMilli(value, zone) {
    const moment = __moment(value, __zone('toUnixTimestampMilli', zone))
    return moment === null ? null : Math.round(moment.dt * 1000000) / 1000
}
