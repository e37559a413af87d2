import { __encodeBytes } from './__encodeBytes.js'

export function generateUUIDv4() {
    const bytes = []
    for (let at = 0; at < 16; at++) {
        bytes.push(Math.floor(Math.random() * 256))
    }
    if (typeof crypto === 'object' && crypto.getRandomValues) {
        crypto.getRandomValues(Uint8Array.from(bytes)).forEach((byte, at) => {
            bytes[at] = byte
        })
    }
    bytes[6] = (bytes[6] % 16) + 64
    bytes[8] = (bytes[8] % 64) + 128
    return __encodeBytes(bytes, 'hex').replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-')
}
