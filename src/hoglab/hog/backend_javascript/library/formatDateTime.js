import { __dateToken } from './__dateToken.js'
import { __expectDateTime } from './__expectDateTime.js'
import { __expectText } from './__expectText.js'
import { __isNull } from './__isNull.js'
import { __toHogDateTime } from './__toHogDateTime.js'
import { __toText } from './__toText.js'
import { __wallClock } from './__wallClock.js'
import { __zone } from './__zone.js'

export function formatDateTime(moment, format, zone) {
    const seconds = __expectDateTime(moment, '').dt
    if (!format) {
        throw new Error('formatDateTime requires at least 2 arguments')
    }
    const text = __toText(format)
    const shown = __isNull(zone) ? moment.zone : __zone('formatDateTime', __expectText('formatDateTime', zone))
    const clock = __wallClock(__toHogDateTime(seconds, shown))
    if (clock === null) {
        throw new Error('The moment lies outside the calendar')
    }
    return text.replace(/%(?:[\ud800-\udbff][\udc00-\udfff]|[^]|$)/g, (found) => __dateToken(found.slice(1), clock))
}
