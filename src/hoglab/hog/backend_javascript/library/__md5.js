import { __padded } from './__padded.js'
import { __wordBytes } from './__wordBytes.js'
import { __words } from './__words.js'

// The MD5 digest of bytes (RFC 1321).
export function __md5(bytes) {
    const shifts = [7, 12, 17, 22, 5, 9, 14, 20, 4, 11, 16, 23, 6, 10, 15, 21]
    const padded = __padded(bytes, true)
    let state = [0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476]
    for (let start = 0; start < padded.length; start += 64) {
        const words = __words(padded, start, true)
        let [a, b, c, d] = state
        for (let step = 0; step < 64; step++) {
            const quarter = step >> 4
            const mixed = [(b & c) | (~b & d), (b & d) | (c & ~d), b ^ c ^ d, c ^ (b | ~d)][quarter]
            const word = words[[step, 5 * step + 1, 3 * step + 5, 7 * step][quarter] % 16]
            const constant = Math.floor(Math.abs(Math.sin(step + 1)) * 4294967296)
            const sum = (a + mixed + word + constant) | 0
            const shift = shifts[quarter * 4 + (step % 4)]
            a = d
            d = c
            c = b
            b = (b + ((sum << shift) | (sum >>> (32 - shift)))) | 0
        }
        state = [state[0] + a, state[1] + b, state[2] + c, state[3] + d].map((word) => word | 0)
    }
    return __wordBytes(state, true)
}
