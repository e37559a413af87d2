import { __padded } from './__padded.js'
import { __primeFractions } from './__primeFractions.js'
import { __wordBytes } from './__wordBytes.js'
import { __words } from './__words.js'

// The SHA-256 digest of bytes (FIPS 180-4, 6.2).
export function __sha256(bytes) {
    const padded = __padded(bytes, false)
    const constants = __primeFractions(64, 3)
    const right = (word, shift) => (word >>> shift) | (word << (32 - shift))
    let state = __primeFractions(8, 2)
    for (let start = 0; start < padded.length; start += 64) {
        const words = __words(padded, start, false)
        let [a, b, c, d, e, f, g, h] = state
        for (let step = 0; step < 64; step++) {
            if (step >= 16) {
                const early = words[step - 15]
                const late = words[step - 2]
                const s0 = right(early, 7) ^ right(early, 18) ^ (early >>> 3)
                const s1 = right(late, 17) ^ right(late, 19) ^ (late >>> 10)
                words.push((words[step - 16] + s0 + words[step - 7] + s1) | 0)
            }
            const big1 = right(e, 6) ^ right(e, 11) ^ right(e, 25)
            const big0 = right(a, 2) ^ right(a, 13) ^ right(a, 22)
            const first = (h + big1 + ((e & f) ^ (~e & g)) + constants[step] + words[step]) | 0
            const second = (big0 + ((a & b) ^ (a & c) ^ (b & c))) | 0
            h = g
            g = f
            f = e
            e = (d + first) | 0
            d = c
            c = b
            b = a
            a = (first + second) | 0
        }
        const turned = [a, b, c, d, e, f, g, h]
        state = state.map((word, at) => (word + turned[at]) | 0)
    }
    return __wordBytes(state, false)
}
