import { __newHogError } from './__newHogError.js'
import { __setOwn } from './__setOwn.js'

// Parsed JSON with the marker objects of errors as error values.
export function __revived(value) {
    if (Array.isArray(value)) {
        return value.map(__revived)
    }
    if (value === null || typeof value !== 'object') {
        return value
    }
    Object.keys(value).forEach((key) => {
        __setOwn(value, key, __revived(value[key]))
    })
    if (value.__hogError__ === true && typeof value.type === 'string' && typeof value.message === 'string') {
        return __newHogError(value.type, value.message, value.payload)
    }
    return value
}
