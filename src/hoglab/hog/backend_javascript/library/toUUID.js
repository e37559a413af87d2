import { __STLToString } from './__STLToString.js'

export function toUUID(value) {
    return __STLToString(value)
}
