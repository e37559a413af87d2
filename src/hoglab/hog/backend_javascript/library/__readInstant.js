import { __daysInMonth } from './__daysInMonth.js'
import { __instant } from './__instant.js'

// The Unix time in seconds of a text in the date-like grammar, null when it is none.
export function __readInstant(text, zone) {
    const grammar = /^\s*([0-9]{4})-([0-9]{2})-([0-9]{2})(?:[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]{1,9}))?)?([Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)?)?\s*$/
    const found = text.length > 1000 ? null : grammar.exec(text)
    if (!found) {
        return null
    }
    const [year, month, day, hour, minute, second] = found.slice(1, 7).map((part) => Number(part || 0))
    if (year < 1 || month < 1 || month > 12 || day < 1 || day > __daysInMonth(year, month)) {
        return null
    }
    if (hour > 23 || minute > 59 || second > 59) {
        return null
    }
    const millisecond = Number(((found[7] || '') + '000').slice(0, 3))
    if (!found[8] || /z/i.test(found[8])) {
        return __instant(year, month, day, hour, minute, second, millisecond, found[8] ? 'UTC' : zone)
    }
    const hours = Number(found[8].slice(1, 3))
    const minutes = found[8].length > 3 ? Number(found[8].slice(-2)) : 0
    if (hours > 23 || minutes > 59) {
        return null
    }
    const ahead = (found[8][0] === '-' ? -60 : 60) * (hours * 60 + minutes)
    return __instant(year, month, day, hour, minute, second, millisecond, 'UTC') - ahead
}
