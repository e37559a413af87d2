import { __daysInMonth } from './__daysInMonth.js'
import { __instant } from './__instant.js'
import { __toHogDateTime } from './__toHogDateTime.js'
import { __wallClock } from './__wallClock.js'

// The moment moved by an amount of a unit, null when that leaves the calendar. Days and longer units move the wall
// clock; months end at the last day of a shorter month; a fraction of a month counts as that part of 30 days.
export function __applyIntervalToDateTime(moment, amount, unit) {
    if (!(amount > -1e12 && amount < 1e12)) {
        return null
    }
    const exact = { hour: 3600, minute: 60, second: 1 }[unit]
    let seconds = moment.dt
    if (exact) {
        seconds += amount * exact
    } else {
        const wanted = amount * ({ month: 1, year: 12 }[unit] || 0)
        const months = Math.trunc(wanted)
        const days = unit === 'day' ? amount : unit === 'week' ? amount * 7 : (wanted - months) * 30
        const whole = Math.trunc(days)
        if (months || whole) {
            const clock = __wallClock(moment)
            if (clock === null) {
                return null
            }
            const count = clock.year * 12 + clock.month - 1 + months
            const year = Math.floor(count / 12)
            const month = count - year * 12 + 1
            if (year < 1 || year > 9999) {
                return null
            }
            const day = months ? Math.min(clock.day, __daysInMonth(year, month)) : clock.day
            seconds = __instant(year, month, day + whole, clock.hour, clock.minute, clock.second, clock.millisecond, moment.zone)
        }
        seconds += (days - whole) * 86400
    }
    return __toHogDateTime(Math.round(seconds * 1000) / 1000, moment.zone)
}
