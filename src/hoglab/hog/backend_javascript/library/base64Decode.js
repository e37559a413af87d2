import { __expectText } from './__expectText.js'
import { __utf8Text } from './__utf8Text.js'

export function base64Decode(text) {
    const digits = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/'
    const source = __expectText('base64Decode', text).split('=')[0].replace(/-/g, '+').replace(/_/g, '/')
    const bytes = []
    let bits = 0
    let pending = 0
    source.replace(/[^A-Za-z0-9+/]/g, '').split('').forEach((digit) => {
        pending = (pending * 64 + digits.indexOf(digit)) % 16384
        bits += 6
        if (bits >= 8) {
            bits -= 8
            bytes.push((pending >> bits) % 256)
        }
    })
    return __utf8Text(bytes)
}
