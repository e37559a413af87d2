import { __toHogInterval } from './__toHogInterval.js'

export function toIntervalHour(amount) {
    return __toHogInterval(amount, 'hour')
}
