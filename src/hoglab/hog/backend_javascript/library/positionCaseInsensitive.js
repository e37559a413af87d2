import { __toText } from './__toText.js'

export function positionCaseInsensitive(text, wanted) {
    return typeof text === 'string' ? text.toLowerCase().indexOf(__toText(wanted).toLowerCase()) + 1 : 0
}
