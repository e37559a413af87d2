import { __expectDateTime } from './__expectDateTime.js'
import { __expectText } from './__expectText.js'
import { __toHogDateTime } from './__toHogDateTime.js'
import { __zone } from './__zone.js'

export function toTimeZone(moment, zone) {
    const seconds = __expectDateTime(moment, '').dt
    return __toHogDateTime(seconds, __zone('toTimeZone', __expectText('toTimeZone', zone)))
}
