import { __primitive } from './__primitive.js'

export function less(left, right) {
    return __primitive(left) < __primitive(right)
}
