import { __same } from './__same.js'

export function indexOf(items, value) {
    return Array.isArray(items) ? items.findIndex((item) => __same(item, value)) + 1 : 0
}
