import { __same } from './__same.js'

export function notEquals(left, right) {
    return !__same(left, right)
}
