import { __dateSeconds } from './__dateSeconds.js'
import { __isHogDate } from './__isHogDate.js'
import { __toHogDateTime } from './__toHogDateTime.js'

export function fromUnixTimestamp(seconds) {
    if (__isHogDate(seconds)) {
        return __toHogDateTime(__dateSeconds(seconds), 'UTC')
    }
    const known = typeof seconds === 'string' || typeof seconds === 'number'
    return known ? __toHogDateTime(Number(seconds), 'UTC') : null
}
