// The bytes padded to whole blocks of 64, their length in bits at the end (FIPS 180-4, RFC 1321).
export function __padded(bytes, littleEndian) {
    const padded = bytes.concat([128])
    while (padded.length % 64 !== 56) {
        padded.push(0)
    }
    const length = []
    for (let at = 0, bits = bytes.length * 8; at < 8; at++, bits = Math.floor(bits / 256)) {
        length.push(bits % 256)
    }
    return padded.concat(littleEndian ? length : length.reverse())
}
