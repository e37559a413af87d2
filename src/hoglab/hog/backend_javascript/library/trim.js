import { __trimmed } from './__trimmed.js'

export function trim(text, character) {
    return __trimmed('trim', text, character, true, true)
}
