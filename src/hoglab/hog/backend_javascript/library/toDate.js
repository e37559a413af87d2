import { __clockOf } from './__clockOf.js'
import { __isHogDate } from './__isHogDate.js'
import { __toHogDate } from './__toHogDate.js'
import { __toHogDateTime } from './__toHogDateTime.js'

export function toDate(value) {
    if (__isHogDate(value)) {
        return value
    }
    const clock = __clockOf(typeof value === 'number' ? __toHogDateTime(value, 'UTC') : value)
    return clock === null ? null : __toHogDate(clock.year, clock.month, clock.day)
}
