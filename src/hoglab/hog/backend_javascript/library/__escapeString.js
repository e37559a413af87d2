// A text as a Hog literal.
export function __escapeString(text) {
    const escapes = {
        '\b': '\\b', '\f': '\\f', '\r': '\\r', '\n': '\\n', '\t': '\\t', '\0': '\\0', '\v': '\\v', '\\': '\\\\', "'": "\\'",
    }
    return "'" + text.replace(/[\b\f\r\n\t\0\v\\']/g, (found) => escapes[found]) + "'"
}
