import { __primitive } from './__primitive.js'

export function lessOrEquals(left, right) {
    return __primitive(left) <= __primitive(right)
}
