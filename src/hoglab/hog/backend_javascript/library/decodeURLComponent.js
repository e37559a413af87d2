import { __toText } from './__toText.js'

export function decodeURLComponent(text) {
    return decodeURIComponent(__toText(text))
}
