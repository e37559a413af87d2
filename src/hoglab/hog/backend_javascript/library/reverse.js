import { __expectText } from './__expectText.js'
import { __isNull } from './__isNull.js'

export function reverse(text) {
    return __isNull(text) ? null : __expectText('reverse', text).split('').reverse().join('')
}
