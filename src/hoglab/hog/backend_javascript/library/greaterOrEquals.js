import { __primitive } from './__primitive.js'

export function greaterOrEquals(left, right) {
    return __primitive(left) >= __primitive(right)
}
