import { __STLToString } from './__STLToString.js'
import { __isDict } from './__isDict.js'
import { __jsonMember } from './__jsonMember.js'
import { __jsonRoot } from './__jsonRoot.js'

export function JSONHas(json, ...path) {
    let current = json
    for (const step of path) {
        current = __jsonRoot(current)
        if (Array.isArray(current)) {
            if (typeof step !== 'number' || step % 1 !== 0 || step === 0 || Math.abs(step) > current.length) {
                return false
            }
        } else if (!__isDict(current) || !Object.prototype.hasOwnProperty.call(current, __STLToString(step))) {
            return false
        }
        current = __jsonMember(current, step)
    }
    return true
}
