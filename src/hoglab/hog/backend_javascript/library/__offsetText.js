import { __twoDigits } from './__twoDigits.js'

// An offset from UTC in milliseconds as `+05:30`.
export function __offsetText(offset, separator) {
    const minutes = Math.abs(Math.floor(offset / 60000))
    return (offset < 0 ? '-' : '+') + __twoDigits(Math.floor(minutes / 60)) + separator + __twoDigits(minutes % 60)
}
