import { __clockOf } from './__clockOf.js'

export function toMonth(value) {
    const clock = __clockOf(value)
    return clock === null ? null : clock.month
}
