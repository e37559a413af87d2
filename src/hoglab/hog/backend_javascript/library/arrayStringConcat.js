import { __isNull } from './__isNull.js'
import { __join } from './__join.js'
import { __toText } from './__toText.js'

export function arrayStringConcat(items, separator) {
    if (!Array.isArray(items)) {
        return ''
    }
    return __join(items, __isNull(separator) ? '' : __toText(separator), [])
}
