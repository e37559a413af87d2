import { __primitive } from './__primitive.js'

export function greater(left, right) {
    return __primitive(left) > __primitive(right)
}
