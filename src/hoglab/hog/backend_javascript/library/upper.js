import { __expectText } from './__expectText.js'
import { __isNull } from './__isNull.js'

export function upper(text) {
    return __isNull(text) ? null : __expectText('upper', text).toUpperCase()
}
