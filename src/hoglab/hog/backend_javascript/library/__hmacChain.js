import { __encodeBytes } from './__encodeBytes.js'
import { __expectText } from './__expectText.js'
import { __hmac } from './__hmac.js'
import { __utf8 } from './__utf8.js'

// The code of the second text under the first as key, which is the key for the third, and so on.
export function __hmacChain(name, digest, items, encoding) {
    if (!Array.isArray(items)) {
        throw new Error('Function ' + name + ' expects an array of strings')
    }
    if (items.length < 2) {
        throw new Error('Data array must contain at least two elements.')
    }
    const bytes = items.map((item) => __utf8(__expectText(name, item)))
    return __encodeBytes(bytes.slice(1).reduce((key, message) => __hmac(digest, key, message), bytes[0]), encoding)
}
