import { __expectText } from './__expectText.js'
import { __isNull } from './__isNull.js'
import { __toNumber } from './__toNumber.js'
import { __toText } from './__toText.js'

export function splitByString(separator, text, most) {
    if (__isNull(text)) {
        return null
    }
    const source = __expectText('splitByString', text)
    return __isNull(most) ? source.split(__toText(separator)) : source.split(__toText(separator), __toNumber(most))
}
