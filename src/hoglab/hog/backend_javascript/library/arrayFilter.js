import { values } from './values.js'

export function arrayFilter(keep, items) {
    return values(items).filter((item) => keep(item))
}
