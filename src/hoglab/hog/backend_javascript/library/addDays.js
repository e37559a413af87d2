import { __shifted } from './__shifted.js'

export function addDays(value, days) {
    return __shifted('day', days, value)
}
