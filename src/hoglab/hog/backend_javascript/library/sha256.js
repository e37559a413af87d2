import { __hashed } from './__hashed.js'
import { __sha256 } from './__sha256.js'

export function sha256(text, encoding) {
    return __hashed('sha256', __sha256, text, encoding)
}
