import { __hashed } from './__hashed.js'
import { __sha256 } from './__sha256.js'

export function sha256Hex(text) {
    return __hashed('sha256Hex', __sha256, text)
}
