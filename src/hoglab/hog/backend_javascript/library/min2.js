import { __primitive } from './__primitive.js'

export function min2(left, right) {
    return __primitive(left) < __primitive(right) ? left : right
}
