export function length(value) {
    return typeof value === 'string' || Array.isArray(value) ? value.length : null
}
