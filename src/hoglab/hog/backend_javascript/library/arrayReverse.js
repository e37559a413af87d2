export function arrayReverse(items) {
    return Array.isArray(items) ? items.slice().reverse() : []
}
