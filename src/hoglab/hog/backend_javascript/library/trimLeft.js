import { __trimmed } from './__trimmed.js'

export function trimLeft(text, character) {
    return __trimmed('trimLeft', text, character, true, false)
}
