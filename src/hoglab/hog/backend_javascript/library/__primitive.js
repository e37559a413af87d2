import { __isNull } from './__isNull.js'
import { __toText } from './__toText.js'

// A value as the relational operators see it: a number or a text.
export function __primitive(value) {
    if (__isNull(value)) {
        return 0
    }
    return typeof value === 'object' || typeof value === 'function' ? __toText(value) : value
}
