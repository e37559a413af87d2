import { __moment } from './__moment.js'
import { __wallClock } from './__wallClock.js'

// The calendar parts of whatever stands for a moment, null when it does not.
export function __clockOf(value) {
    const moment = __moment(value)
    return moment === null ? null : __wallClock(moment)
}
