import { __hmacChain } from './__hmacChain.js'
import { __sha256 } from './__sha256.js'

export function sha256HmacChainHex(items) {
    return __hmacChain('sha256HmacChainHex', __sha256, items)
}
