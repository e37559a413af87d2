import { values } from './values.js'

export function arrayCount(test, items) {
    return values(items).filter((item) => test(item)).length
}
