import { __hashed } from './__hashed.js'
import { __sha1 } from './__sha1.js'

export function sha1(text, encoding) {
    return __hashed('sha1', __sha1, text, encoding)
}
