import { __isNull } from './__isNull.js'
import { __toText } from './__toText.js'

export function multiSearchAnyCaseInsensitive(text, wanted) {
    if (__isNull(text) || !Array.isArray(wanted)) {
        return 0
    }
    const source = __toText(text).toLowerCase()
    return wanted.some((one) => source.includes(__toText(one).toLowerCase())) ? 1 : 0
}
