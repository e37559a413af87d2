import { __isNull } from './__isNull.js'
import { __moment } from './__moment.js'

// As a moment, but refuses what can be no date at all.
export function __expectMoment(value) {
    const moment = __moment(value)
    if (moment === null && !__isNull(value) && typeof value !== 'string') {
        throw new Error('Expected a DateTime')
    }
    return moment
}
