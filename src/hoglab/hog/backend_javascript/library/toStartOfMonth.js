import { __startOfValue } from './__startOfValue.js'

export function toStartOfMonth(value) {
    return __startOfValue(value, 'month')
}
