import { __isHogDate } from './__isHogDate.js'
import { __isHogDateTime } from './__isHogDateTime.js'
import { __isHogError } from './__isHogError.js'

// Whether a value is a plain object: no array, date, moment or error.
export function __isDict(value) {
    return (
        value !== null &&
        typeof value === 'object' &&
        !Array.isArray(value) &&
        !__isHogDate(value) &&
        !__isHogDateTime(value) &&
        !__isHogError(value)
    )
}
