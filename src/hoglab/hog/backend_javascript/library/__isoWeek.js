import { __utcMilliseconds } from './__utcMilliseconds.js'

// The ISO 8601 week of a calendar day: the one that its Thursday lies in.
export function __isoWeek(clock) {
    const thursday = new Date(__utcMilliseconds(clock.year, clock.month, clock.day + 4 - clock.weekday, 0, 0, 0, 0))
    const first = __utcMilliseconds(thursday.getUTCFullYear(), 1, 1, 0, 0, 0, 0)
    return Math.floor((thursday.getTime() - first) / 604800000) + 1
}
