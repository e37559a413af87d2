// A name as it is written in Hog, in backticks if it must be.
export function __escapeIdentifier(name) {
    if (/^[A-Za-z_$][A-Za-z0-9_$]*$/.test(name)) {
        return name
    }
    return '`' + name.replace(/\\/g, '\\\\').replace(/`/g, '\\`') + '`'
}
