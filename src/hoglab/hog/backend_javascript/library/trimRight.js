import { __trimmed } from './__trimmed.js'

export function trimRight(text, character) {
    return __trimmed('trimRight', text, character, false, true)
}
