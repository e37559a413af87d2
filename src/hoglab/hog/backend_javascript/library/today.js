import { now } from './now.js'
import { toDate } from './toDate.js'

export function today() {
    return toDate(now())
}
