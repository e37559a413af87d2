import { __hmacChain } from './__hmacChain.js'
import { __sha256 } from './__sha256.js'

export function sha256HmacChain(items, encoding) {
    return __hmacChain('sha256HmacChain', __sha256, items, encoding)
}
