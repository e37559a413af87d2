import { __milliseconds } from './__milliseconds.js'
import { __zoneOffset } from './__zoneOffset.js'

// The parts of a moment as its zone's clocks and calendars show them; null outside the years 1 to 9999.
export function __wallClock(moment) {
    const milliseconds = __milliseconds(moment.dt)
    const offset = __zoneOffset(milliseconds, moment.zone)
    const local = new Date(milliseconds + offset)
    const year = local.getUTCFullYear()
    if (!(year >= 1 && year <= 9999)) {
        return null
    }
    return {
        year: year,
        month: local.getUTCMonth() + 1,
        day: local.getUTCDate(),
        hour: local.getUTCHours(),
        minute: local.getUTCMinutes(),
        second: local.getUTCSeconds(),
        millisecond: local.getUTCMilliseconds(),
        weekday: local.getUTCDay() || 7,
        offset: offset,
    }
}
