import { __utf8 } from './__utf8.js'
import { __utf8Text } from './__utf8Text.js'

// The text with lone surrogates replaced, so that it can be written as UTF-8.
export function __cleanText(text) {
    return /[\ud800-\udfff]/.test(text) ? __utf8Text(__utf8(text)) : text
}
