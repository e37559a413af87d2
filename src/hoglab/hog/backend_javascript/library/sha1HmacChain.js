import { __hmacChain } from './__hmacChain.js'
import { __sha1 } from './__sha1.js'

export function sha1HmacChain(items, encoding) {
    return __hmacChain('sha1HmacChain', __sha1, items, encoding)
}
