import { __isNull } from './__isNull.js'
import { __regExp } from './__regExp.js'
import { __toText } from './__toText.js'

export function extractRegex(text, pattern) {
    if (__isNull(text) || __isNull(pattern) || pattern === '') {
        return ''
    }
    const found = __regExp(__toText(pattern), false).exec(__toText(text))
    if (!found) {
        return ''
    }
    return found.length > 1 && found[1] !== undefined ? found[1] : found[0]
}
