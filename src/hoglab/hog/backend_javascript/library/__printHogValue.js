import { __escapeString } from './__escapeString.js'
import { __functionText } from './__functionText.js'
import { __isHogDate } from './__isHogDate.js'
import { __isHogDateTime } from './__isHogDateTime.js'
import { __isHogError } from './__isHogError.js'
import { __isNull } from './__isNull.js'
import { __isTuple } from './__isTuple.js'

// A value as the printer shows it: like a Hog literal where there is one. Cycles print as null.
export function __printHogValue(value, above) {
    if (typeof value === 'string') {
        return __escapeString(value)
    }
    if (__isNull(value)) {
        return 'null'
    }
    if (typeof value === 'function') {
        return __functionText(value)
    }
    if (typeof value !== 'object') {
        return String(value)
    }
    if (__isHogDateTime(value)) {
        const seconds = String(value.dt)
        const fraction = seconds.indexOf('.') < 0 ? '.0' : ''
        return 'DateTime(' + seconds + fraction + ', ' + __escapeString(value.zone) + ')'
    }
    if (__isHogDate(value)) {
        return 'Date(' + value.year + ', ' + value.month + ', ' + value.day + ')'
    }
    const parents = above || []
    if (parents.indexOf(value) >= 0) {
        return 'null'
    }
    const inside = parents.concat([value])
    const show = (part) => __printHogValue(part, inside)
    if (Array.isArray(value)) {
        const items = Array.from(value, show).join(', ')
        return __isTuple(value) ? (value.length < 2 ? 'tuple(' : '(') + items + ')' : '[' + items + ']'
    }
    if (__isHogError(value)) {
        const payload = value.payload ? ', ' + show(value.payload) : ''
        return (value.type || 'Error') + '(' + __escapeString(value.message) + payload + ')'
    }
    return '{' + Object.keys(value).map((key) => show(key) + ': ' + show(value[key])).join(', ') + '}'
}
