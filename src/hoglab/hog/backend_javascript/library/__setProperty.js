import { __STLToString } from './__STLToString.js'
import { __isDict } from './__isDict.js'
import { __isNull } from './__isNull.js'
import { __memberName } from './__memberName.js'
import { __setOwn } from './__setOwn.js'

// Stores a member and gives the object. A write past the end of an array fills the gap with null.
export function __setProperty(object, key, value) {
    if (Array.isArray(object)) {
        if (typeof key !== 'number' || key % 1 !== 0) {
            throw new Error('Can not set ' + __STLToString(key) + ' on element of type object')
        }
        if (key <= 0) {
            throw new Error('Hog arrays start from index 1')
        }
        while (object.length < key - 1) {
            object.push(null)
        }
        object[key - 1] = value
        return object
    }
    if (!__isDict(object)) {
        const kind = __isNull(object) || typeof object === 'function' ? 'object' : typeof object
        throw new Error('Can not set ' + __STLToString(key) + ' on non-object: ' + kind)
    }
    __setOwn(object, __memberName(key), value)
    return object
}
