import { values } from './values.js'

export function arrayExists(test, items) {
    return values(items).some((item) => test(item))
}
