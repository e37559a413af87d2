import { __isNull } from './__isNull.js'
import { __toText } from './__toText.js'

export function tryDecodeURLComponent(text) {
    try {
        return __isNull(text) ? null : decodeURIComponent(__toText(text))
    } catch (error) {
        return null
    }
}
