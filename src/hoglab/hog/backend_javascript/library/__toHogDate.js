import { __dateSeconds } from './__dateSeconds.js'
import { __ordered } from './__ordered.js'

export function __toHogDate(year, month, day) {
    const date = { __hogDate__: true, year: year, month: month, day: day }
    return __ordered(date, () => __dateSeconds(date))
}
