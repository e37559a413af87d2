import { __dateSeconds } from './__dateSeconds.js'
import { __isHogDate } from './__isHogDate.js'
import { __isHogDateTime } from './__isHogDateTime.js'
import { __toText } from './__toText.js'

export function toFloat(value) {
    if (__isHogDateTime(value)) {
        return value.dt
    }
    if (__isHogDate(value)) {
        return __dateSeconds(value) / 86400
    }
    const number = parseFloat(__toText(value))
    return isNaN(number) ? null : number
}
