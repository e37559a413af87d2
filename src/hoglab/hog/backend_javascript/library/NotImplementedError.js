import { __newHogError } from './__newHogError.js'

export function NotImplementedError(message, payload) {
    return __newHogError('NotImplementedError', message, payload)
}
