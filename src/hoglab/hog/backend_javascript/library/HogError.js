import { __newHogError } from './__newHogError.js'

export function HogError(type, message, payload) {
    return __newHogError(type, message, payload)
}
