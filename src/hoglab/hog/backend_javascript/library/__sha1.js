import { __padded } from './__padded.js'
import { __wordBytes } from './__wordBytes.js'
import { __words } from './__words.js'

// The SHA-1 digest of bytes (FIPS 180-4, 6.1).
export function __sha1(bytes) {
    const padded = __padded(bytes, false)
    const constants = [0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6]
    const left = (word, shift) => (word << shift) | (word >>> (32 - shift))
    let state = [0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0]
    for (let start = 0; start < padded.length; start += 64) {
        const words = __words(padded, start, false)
        let [a, b, c, d, e] = state
        for (let step = 0; step < 80; step++) {
            if (step >= 16) {
                words.push(left(words[step - 3] ^ words[step - 8] ^ words[step - 14] ^ words[step - 16], 1))
            }
            const stage = Math.floor(step / 20)
            const parity = b ^ c ^ d
            const mixed = [(b & c) | (~b & d), parity, (b & c) | (b & d) | (c & d), parity][stage]
            const next = (left(a, 5) + mixed + e + constants[stage] + words[step]) | 0
            e = d
            d = c
            c = left(b, 30)
            b = a
            a = next
        }
        state = [state[0] + a, state[1] + b, state[2] + c, state[3] + d, state[4] + e].map((word) => word | 0)
    }
    return __wordBytes(state, false)
}
