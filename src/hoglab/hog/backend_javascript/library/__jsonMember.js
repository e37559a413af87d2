import { __getProperty } from './__getProperty.js'

// A member for a step of a path; null when there is none, also at position 0 of an array.
export function __jsonMember(container, step) {
    if (Array.isArray(container)) {
        return __getProperty(container, step, true)
    }
    return __getProperty(container, step === 0 ? '0' : step, true)
}
