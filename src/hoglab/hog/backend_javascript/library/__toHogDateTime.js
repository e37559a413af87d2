import { __ordered } from './__ordered.js'

// The moment of a Unix time in seconds, shown in a zone; null for years before 1 and after 9999.
export function __toHogDateTime(seconds, zone) {
    if (typeof seconds !== 'number' || !(seconds >= -62135596800 && seconds <= 253402300799.999)) {
        return null
    }
    const moment = { __hogDateTime__: true, dt: seconds, zone: zone || 'UTC' }
    return __ordered(moment, () => moment.dt)
}
