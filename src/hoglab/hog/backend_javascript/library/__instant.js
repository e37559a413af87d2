import { __utcMilliseconds } from './__utcMilliseconds.js'
import { __zoneOffset } from './__zoneOffset.js'

// The Unix time in seconds of a calendar time in a zone. A time that occurs twice is the first one; one that the
// clocks skip counts from before the change.
export function __instant(year, month, day, hour, minute, second, millisecond, zone) {
    const local = __utcMilliseconds(year, month, day, hour, minute, second, millisecond)
    const before = __zoneOffset(local - 86400000, zone)
    const after = __zoneOffset(local + 86400000, zone)
    const fits = (offset) => __zoneOffset(local - offset, zone) === offset
    return (local - (!fits(before) && fits(after) ? after : before)) / 1000
}
