// The UTF-8 bytes of a text.
export function __utf8(text) {
    return Array.from(new TextEncoder().encode(text))
}
