// The bytes of 32-bit words.
export function __wordBytes(words, littleEndian) {
    const bytes = []
    words.forEach((word) => {
        const four = [24, 16, 8, 0].map((shift) => (word >>> shift) % 256)
        bytes.push(...(littleEndian ? four.reverse() : four))
    })
    return bytes
}
