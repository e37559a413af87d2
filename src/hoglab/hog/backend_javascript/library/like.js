import { __like } from './__like.js'

export function like(text, pattern) {
    return __like(text, pattern, false)
}
