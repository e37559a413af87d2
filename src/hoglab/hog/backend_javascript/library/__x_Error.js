import { __newHogError } from './__newHogError.js'

export function __x_Error(message, payload) {
    return __newHogError('Error', message, payload)
}
