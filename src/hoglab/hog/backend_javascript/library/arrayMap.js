import { values } from './values.js'

export function arrayMap(transform, items) {
    return values(items).map((item) => transform(item))
}
