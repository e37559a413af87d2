import { __expectText } from './__expectText.js'
import { __isNull } from './__isNull.js'

// The text without a character at its ends; empty when that is not a single one.
export function __trimmed(name, text, character, left, right) {
    if (__isNull(text)) {
        return null
    }
    const unwanted = __isNull(character) ? ' ' : character
    if (typeof unwanted !== 'string' || unwanted.length !== 1) {
        return ''
    }
    const source = __expectText(name, text)
    let start = 0
    let end = source.length
    while (left && start < end && source[start] === unwanted) {
        start++
    }
    while (right && end > start && source[end - 1] === unwanted) {
        end--
    }
    return source.slice(start, end)
}
