import { has } from './has.js'

export function __x_in(value, items) {
    return has(items, value)
}
