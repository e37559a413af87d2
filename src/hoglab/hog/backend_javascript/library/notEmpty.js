import { empty } from './empty.js'

export function notEmpty(value) {
    return !empty(value)
}
