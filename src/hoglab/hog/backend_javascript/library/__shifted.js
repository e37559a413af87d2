import { __applyIntervalToDateTime } from './__applyIntervalToDateTime.js'
import { __expectMoment } from './__expectMoment.js'
import { __isHogDate } from './__isHogDate.js'
import { __toNumber } from './__toNumber.js'
import { __toText } from './__toText.js'
import { toDate } from './toDate.js'

// A date or moment moved by an amount of a unit; a date stays a date.
export function __shifted(unit, amount, value) {
    const moment = __expectMoment(value)
    if (moment === null) {
        return null
    }
    const number = __toNumber(amount)
    if (isNaN(number) || typeof amount === 'boolean' || amount === '') {
        throw new Error('Invalid number of units: ' + __toText(amount).slice(0, 50))
    }
    const moved = __applyIntervalToDateTime(moment, number, unit)
    return moved !== null && __isHogDate(value) ? toDate(moved) : moved
}
