import { __startOfValue } from './__startOfValue.js'

export function toStartOfDay(value) {
    return __startOfValue(value, 'day')
}
