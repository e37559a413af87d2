import { __isDict } from './__isDict.js'
import { __isHogError } from './__isHogError.js'
import { __isNull } from './__isNull.js'
import { __memberName } from './__memberName.js'

// A member of a value, null when there is none. Arrays count from 1, negative positions from their end.
export function __getProperty(object, key, nullish) {
    if (__isNull(object) || (nullish && !object) || key === 0) {
        return null
    }
    if (Array.isArray(object)) {
        const position = key > 0 ? key - 1 : object.length + key
        const found = typeof key === 'number' ? object[position] : key === 'length' ? object.length : null
        return found === undefined ? null : found
    }
    if (typeof object === 'string') {
        return key === 'length' ? object.length : null
    }
    if (typeof object !== 'object') {
        return null
    }
    if (__isHogError(object)) {
        const part = key === 'type' || key === 'message' || key === 'payload' ? object[key] : null
        return part === undefined ? null : part
    }
    const name = __memberName(key)
    const hidden = !__isDict(object) && name.slice(0, 5) === '__hog' // the mark of a date or moment
    const own = !hidden && Object.prototype.hasOwnProperty.call(object, name) ? object[name] : null
    return own === undefined ? null : own
}
