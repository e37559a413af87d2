import { __encodeBytes } from './__encodeBytes.js'
import { __expectText } from './__expectText.js'
import { __utf8 } from './__utf8.js'

export function base64Encode(text) {
    return __encodeBytes(__utf8(__expectText('base64Encode', text)), 'base64')
}
