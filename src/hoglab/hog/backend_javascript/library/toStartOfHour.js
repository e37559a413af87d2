import { __startOfValue } from './__startOfValue.js'

export function toStartOfHour(value) {
    return __startOfValue(value, 'hour')
}
