import { __isHogDate } from './__isHogDate.js'
import { __isHogDateTime } from './__isHogDateTime.js'
import { __isHogError } from './__isHogError.js'
import { __isNull } from './__isNull.js'
import { __isTuple } from './__isTuple.js'

export function __x_typeof(value) {
    if (__isNull(value)) {
        return 'null'
    }
    if (typeof value === 'number') {
        return Number.isInteger(value) ? 'integer' : 'float'
    }
    if (typeof value !== 'object') {
        return typeof value
    }
    if (Array.isArray(value)) {
        return __isTuple(value) ? 'tuple' : 'array'
    }
    if (__isHogDateTime(value)) {
        return 'datetime'
    }
    if (__isHogDate(value)) {
        return 'date'
    }
    if (__isHogError(value)) {
        return 'error'
    }
    return Object.prototype.hasOwnProperty.call(value, '__hx_ast') ? 'sql' : 'object'
}
