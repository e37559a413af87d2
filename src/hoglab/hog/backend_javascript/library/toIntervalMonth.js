import { __toHogInterval } from './__toHogInterval.js'

export function toIntervalMonth(amount) {
    return __toHogInterval(amount, 'month')
}
