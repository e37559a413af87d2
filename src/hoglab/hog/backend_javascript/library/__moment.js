import { __dateSeconds } from './__dateSeconds.js'
import { __isHogDate } from './__isHogDate.js'
import { __isHogDateTime } from './__isHogDateTime.js'
import { __readInstant } from './__readInstant.js'
import { __toHogDateTime } from './__toHogDateTime.js'

// The moment that a datetime, date or text stands for, null for everything else.
export function __moment(value, zone) {
    if (__isHogDateTime(value)) {
        return value
    }
    if (__isHogDate(value)) {
        return __toHogDateTime(__dateSeconds(value), 'UTC')
    }
    return typeof value === 'string' ? __toHogDateTime(__readInstant(value, zone || 'UTC'), 'UTC') : null
}
