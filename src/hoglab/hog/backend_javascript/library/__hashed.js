import { __encodeBytes } from './__encodeBytes.js'
import { __expectText } from './__expectText.js'
import { __isNull } from './__isNull.js'
import { __utf8 } from './__utf8.js'

// The digest of a text in an encoding; null for null.
export function __hashed(name, digest, text, encoding) {
    return __isNull(text) ? null : __encodeBytes(digest(__utf8(__expectText(name, text))), encoding)
}
