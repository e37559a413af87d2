import { __STLToString } from './__STLToString.js'
import { __isNull } from './__isNull.js'

export function concat(...parts) {
    return parts.map((part) => (__isNull(part) ? '' : __STLToString(part))).join('')
}
