import { __hmacChain } from './__hmacChain.js'
import { __sha1 } from './__sha1.js'

export function sha1HmacChainHex(items) {
    return __hmacChain('sha1HmacChainHex', __sha1, items)
}
