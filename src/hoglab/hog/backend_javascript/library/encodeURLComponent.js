import { __cleanText } from './__cleanText.js'
import { __toText } from './__toText.js'

export function encodeURLComponent(text) {
    return encodeURIComponent(__cleanText(__toText(text)))
}
