import { __startOfValue } from './__startOfValue.js'

export function toStartOfWeek(value) {
    return __startOfValue(value, 'week')
}
