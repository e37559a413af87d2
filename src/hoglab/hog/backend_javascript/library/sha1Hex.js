import { __hashed } from './__hashed.js'
import { __sha1 } from './__sha1.js'

export function sha1Hex(text) {
    return __hashed('sha1Hex', __sha1, text)
}
