import { __clockOf } from './__clockOf.js'
import { __moment } from './__moment.js'
import { __toText } from './__toText.js'

export function dateDiff(unit, start, end) {
    const seconds = { second: 1, minute: 60, hour: 3600, day: 86400, week: 604800 }
    if (typeof unit !== 'string' || (!seconds[unit] && unit !== 'month' && unit !== 'year')) {
        throw new Error('Unsupported unit for dateDiff: ' + __toText(unit).slice(0, 50))
    }
    if (!seconds[unit]) {
        const a = __clockOf(start)
        const b = __clockOf(end)
        if (a === null || b === null) {
            return null
        }
        return unit === 'year' ? b.year - a.year : (b.year - a.year) * 12 + b.month - a.month
    }
    const first = __moment(start)
    const last = __moment(end)
    if (first === null || last === null) {
        return null
    }
    return Math.floor(Math.round((last.dt - first.dt) * 1000) / (1000 * seconds[unit]))
}
