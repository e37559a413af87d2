import { __cleanText } from './__cleanText.js'
import { __functionText } from './__functionText.js'
import { __isHogError } from './__isHogError.js'
import { __isNull } from './__isNull.js'
import { __setOwn } from './__setOwn.js'

// A value as plain data for JSON: errors as their markers, functions as their text, cycles as null.
export function __plain(value, above) {
    if (typeof value === 'string') {
        return __cleanText(value)
    }
    if (typeof value === 'function') {
        return __functionText(value)
    }
    if (__isNull(value) || typeof value !== 'object') {
        return __isNull(value) ? null : value
    }
    if (above.indexOf(value) >= 0) {
        return null
    }
    const inside = above.concat([value])
    if (Array.isArray(value)) {
        return Array.from(value, (item) => __plain(item, inside))
    }
    const made = {}
    if (__isHogError(value)) {
        made.__hogError__ = true
        made.type = value.type || 'Error'
        made.message = value.message
        if (!__isNull(value.payload)) {
            made.payload = __plain(value.payload, inside)
        }
        return made
    }
    Object.keys(value).forEach((key) => {
        __setOwn(made, __cleanText(key), __plain(value[key], inside))
    })
    return made
}
