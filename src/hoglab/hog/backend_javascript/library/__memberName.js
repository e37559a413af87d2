import { __printHogValue } from './__printHogValue.js'

// The name under which an object has a member; those of JavaScript are texts.
export function __memberName(key) {
    return typeof key === 'object' && key !== null ? __printHogValue(key) : String(key)
}
