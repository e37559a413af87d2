import { __twoDigits } from './__twoDigits.js'

export function __DateToString(date) {
    return ('000' + date.year).slice(-4) + '-' + __twoDigits(date.month) + '-' + __twoDigits(date.day)
}
