import { __utcMilliseconds } from './__utcMilliseconds.js'

// The Unix time of a day's midnight in UTC.
export function __dateSeconds(date) {
    return __utcMilliseconds(date.year, date.month, date.day, 0, 0, 0, 0) / 1000
}
