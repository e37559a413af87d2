import { __utcMilliseconds } from './__utcMilliseconds.js'

export function __daysInMonth(year, month) {
    return new Date(__utcMilliseconds(year, month + 1, 0, 0, 0, 0, 0)).getUTCDate()
}
