import { __regExp } from './__regExp.js'
import { __toText } from './__toText.js'

// `=~*`: as `match`, whatever the case of letters; an empty pattern matches.
export function __imatch(text, pattern) {
    return !!text && __regExp(__toText(pattern), true).test(__toText(text))
}
