import { __expectText } from './__expectText.js'
import { __isNull } from './__isNull.js'
import { __zoneOffset } from './__zoneOffset.js'

// A zone argument: UTC when it is missing or empty. Refuses one that does not exist.
export function __zone(name, zone) {
    if (__isNull(zone) || zone === '') {
        return 'UTC'
    }
    __zoneOffset(0, __expectText(name, zone))
    return zone
}
