import { __clockOf } from './__clockOf.js'

export function toYYYYMM(value) {
    const clock = __clockOf(value)
    return clock === null ? null : clock.year * 100 + clock.month
}
