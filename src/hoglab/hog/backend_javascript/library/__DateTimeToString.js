import { __DateToString } from './__DateToString.js'
import { __offsetText } from './__offsetText.js'
import { __twoDigits } from './__twoDigits.js'
import { __wallClock } from './__wallClock.js'

// ISO 8601 with milliseconds: `Z` for UTC, else the offset; empty outside the years 1 to 9999.
export function __DateTimeToString(moment) {
    const clock = __wallClock(moment)
    if (clock === null) {
        return ''
    }
    const time = [clock.hour, clock.minute, clock.second].map(__twoDigits).join(':')
    const text = __DateToString(clock) + 'T' + time + '.' + ('00' + clock.millisecond).slice(-3)
    return text + (/^(UTC|GMT)$/i.test(moment.zone) ? 'Z' : __offsetText(clock.offset, ':'))
}
