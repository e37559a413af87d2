import { base64Decode } from './base64Decode.js'

export function tryBase64Decode(text) {
    return typeof text === 'string' ? base64Decode(text) : ''
}
