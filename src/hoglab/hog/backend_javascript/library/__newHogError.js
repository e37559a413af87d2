import { __STLToString } from './__STLToString.js'

// An error as a value that can be thrown. Whatever is no text becomes text.
export function __newHogError(type, message, payload) {
    const error = new Error(message ? __STLToString(message) : 'An error occurred')
    error.__hogError__ = true
    error.type = type ? __STLToString(type) : 'Error'
    error.payload = payload === undefined ? null : payload
    return error
}
