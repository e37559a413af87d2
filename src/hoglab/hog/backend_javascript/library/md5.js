import { __hashed } from './__hashed.js'
import { __md5 } from './__md5.js'

export function md5(text, encoding) {
    return __hashed('md5', __md5, text, encoding)
}
