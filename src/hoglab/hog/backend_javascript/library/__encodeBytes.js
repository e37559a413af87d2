import { __isNull } from './__isNull.js'

// Bytes as text in an encoding; hexadecimal when none is named.
export function __encodeBytes(bytes, encoding) {
    if (__isNull(encoding) || encoding === 'hex') {
        return bytes.map((byte) => (byte < 16 ? '0' : '') + byte.toString(16)).join('')
    }
    if (encoding === 'binary') {
        return bytes.map((byte) => String.fromCharCode(byte)).join('')
    }
    if (encoding !== 'base64' && encoding !== 'base64url') {
        throw new Error('Unknown encoding, expected one of hex, base64, base64url, binary')
    }
    const digits = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/'
    let text = ''
    for (let at = 0; at < bytes.length; at += 3) {
        const three = bytes[at] * 65536 + (bytes[at + 1] || 0) * 256 + (bytes[at + 2] || 0)
        const four = [18, 12, 6, 0].map((shift) => digits[(three >> shift) % 64])
        const missing = Math.max(0, at + 3 - bytes.length)
        text += four.slice(0, 4 - missing).join('') + '=='.slice(0, missing)
    }
    return encoding === 'base64' ? text : text.replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '')
}
