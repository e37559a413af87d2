// The 32-bit words of one block of 64 bytes.
export function __words(bytes, start, littleEndian) {
    const words = []
    for (let at = start; at < start + 64; at += 4) {
        const four = littleEndian ? bytes.slice(at, at + 4).reverse() : bytes.slice(at, at + 4)
        words.push((four[0] << 24) | (four[1] << 16) | (four[2] << 8) | four[3])
    }
    return words
}
