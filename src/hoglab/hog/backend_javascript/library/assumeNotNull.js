import { __isNull } from './__isNull.js'

export function assumeNotNull(value) {
    if (__isNull(value)) {
        throw new Error('Value is null in assumeNotNull')
    }
    return value
}
