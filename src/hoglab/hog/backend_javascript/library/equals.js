import { __same } from './__same.js'

export function equals(left, right) {
    return __same(left, right)
}
