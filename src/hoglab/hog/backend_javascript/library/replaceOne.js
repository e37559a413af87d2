import { __expectText } from './__expectText.js'
import { __isNull } from './__isNull.js'
import { __toText } from './__toText.js'

export function replaceOne(text, search, replacement) {
    if (__isNull(text)) {
        return null
    }
    return __expectText('replaceOne', text).replace(__toText(search), () => __toText(replacement))
}
