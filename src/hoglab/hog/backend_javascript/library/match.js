import { __regExp } from './__regExp.js'
import { __toText } from './__toText.js'

export function match(text, pattern) {
    return !!text && !!pattern && __regExp(__toText(pattern), false).test(__toText(text))
}
