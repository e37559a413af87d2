import { __toHogInterval } from './__toHogInterval.js'

export function toIntervalMinute(amount) {
    return __toHogInterval(amount, 'minute')
}
