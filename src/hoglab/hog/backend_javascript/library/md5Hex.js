import { __hashed } from './__hashed.js'
import { __md5 } from './__md5.js'

export function md5Hex(text) {
    return __hashed('md5Hex', __md5, text)
}
