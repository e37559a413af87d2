export function startsWith(text, prefix) {
    return typeof text === 'string' && typeof prefix === 'string' && text.startsWith(prefix)
}
