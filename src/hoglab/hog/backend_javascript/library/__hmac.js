// The message authentication code of bytes under a key (RFC 2104), for digests with blocks of 64 bytes.
export function __hmac(digest, key, message) {
    const block = key.length > 64 ? digest(key) : key.slice()
    while (block.length < 64) {
        block.push(0)
    }
    const inner = digest(block.map((byte) => byte ^ 0x36).concat(message))
    return digest(block.map((byte) => byte ^ 0x5c).concat(inner))
}
