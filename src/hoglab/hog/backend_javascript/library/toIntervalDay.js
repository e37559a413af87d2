import { __toHogInterval } from './__toHogInterval.js'

export function toIntervalDay(amount) {
    return __toHogInterval(amount, 'day')
}
