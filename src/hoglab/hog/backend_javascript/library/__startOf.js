import { __instant } from './__instant.js'
import { __milliseconds } from './__milliseconds.js'
import { __toHogDateTime } from './__toHogDateTime.js'
import { __wallClock } from './__wallClock.js'

// The start of a unit of a moment, in its zone; null when it leaves the calendar.
export function __startOf(moment, unit) {
    const clock = __wallClock(moment)
    if (clock === null) {
        return null
    }
    if (unit === 'hour' || unit === 'minute') {
        const past = clock.second * 1000 + clock.millisecond + (unit === 'hour' ? clock.minute * 60000 : 0)
        return __toHogDateTime((__milliseconds(moment.dt) - past) / 1000, moment.zone)
    }
    const month = unit === 'year' ? 1 : clock.month
    const first = unit === 'year' || unit === 'month'
    const day = first ? 1 : clock.day - (unit === 'week' ? clock.weekday - 1 : 0)
    return __toHogDateTime(__instant(clock.year, month, day, 0, 0, 0, 0, moment.zone), moment.zone)
}
