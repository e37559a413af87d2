import { __clockOf } from './__clockOf.js'

export function toYear(value) {
    const clock = __clockOf(value)
    return clock === null ? null : clock.year
}
