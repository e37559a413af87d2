import { values } from './values.js'

export function arrayReduce(combine, items, initial) {
    return values(items).reduce((result, item) => combine(result, item), initial)
}
