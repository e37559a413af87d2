import { __x_typeof } from './__x_typeof.js'

// The value if it is a text; null passes where the function allows it.
export function __expectText(name, value) {
    if (typeof value !== 'string') {
        throw new Error('Function ' + name + ' expects a string, got ' + __x_typeof(value))
    }
    return value
}
