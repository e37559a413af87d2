import { __like } from './__like.js'

export function notILike(text, pattern) {
    return !__like(text, pattern, true)
}
