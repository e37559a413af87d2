import { __DateTimeToString } from './__DateTimeToString.js'
import { __DateToString } from './__DateToString.js'
import { __isHogDate } from './__isHogDate.js'
import { __isHogDateTime } from './__isHogDateTime.js'
import { __printHogValue } from './__printHogValue.js'

// What `toString` gives: texts as they are, dates in ISO form, everything else as the printer has it.
export function __STLToString(value) {
    if (typeof value === 'string') {
        return value
    }
    if (__isHogDateTime(value)) {
        return __DateTimeToString(value)
    }
    if (__isHogDate(value)) {
        return __DateToString(value)
    }
    return __printHogValue(value)
}
