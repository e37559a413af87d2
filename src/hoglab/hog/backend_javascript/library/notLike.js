import { __like } from './__like.js'

export function notLike(text, pattern) {
    return !__like(text, pattern, false)
}
