import { __isDict } from './__isDict.js'
import { __jsonMember } from './__jsonMember.js'
import { __jsonRoot } from './__jsonRoot.js'

// The value at a path into an object or array, null when there is none. Array positions count from 1.
export function __getNestedValue(object, path, allowNull) {
    const selects = (container, step) => __isDict(container) || (Array.isArray(container) && typeof step === 'number')
    const root = __jsonRoot(object)
    const start = Array.isArray(root) || __isDict(root) ? root : null
    const found = path.reduce((at, step) => (selects(at, step) ? __jsonMember(at, step) : null), start)
    if (found === null && !allowNull) {
        throw new Error('There is nothing at ' + path.join('.'))
    }
    return found
}
