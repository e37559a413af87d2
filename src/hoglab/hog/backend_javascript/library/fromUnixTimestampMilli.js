import { __toHogDateTime } from './__toHogDateTime.js'
import { __toNumber } from './__toNumber.js'

export function fromUnixTimestampMilli(milliseconds) {
    return __toHogDateTime(__toNumber(milliseconds) / 1000, 'UTC')
}
