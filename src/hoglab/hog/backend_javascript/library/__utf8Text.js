// The text of UTF-8 bytes; what is malformed becomes U+FFFD.
export function __utf8Text(bytes) {
    return new TextDecoder('utf-8', { ignoreBOM: true }).decode(Uint8Array.from(bytes))
}
