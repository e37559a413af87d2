import { __toText } from './__toText.js'

export function position(text, wanted) {
    return typeof text === 'string' ? text.indexOf(__toText(wanted)) + 1 : 0
}
