import { __like } from './__like.js'

export function ilike(text, pattern) {
    return __like(text, pattern, true)
}
