import { __isNull } from './__isNull.js'

export function coalesce(...values) {
    const found = values.find((value) => !__isNull(value))
    return found === undefined ? null : found
}
