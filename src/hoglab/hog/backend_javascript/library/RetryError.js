import { __newHogError } from './__newHogError.js'

export function RetryError(message, payload) {
    return __newHogError('RetryError', message, payload)
}
