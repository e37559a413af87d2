import { __STLToString } from './__STLToString.js'

export function toString(value) {
    return __STLToString(value)
}
