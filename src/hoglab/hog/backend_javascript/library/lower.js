import { __expectText } from './__expectText.js'
import { __isNull } from './__isNull.js'

export function lower(text) {
    return __isNull(text) ? null : __expectText('lower', text).toLowerCase()
}
