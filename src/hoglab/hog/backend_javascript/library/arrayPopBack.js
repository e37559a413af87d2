export function arrayPopBack(items) {
    return Array.isArray(items) ? items.slice(0, -1) : []
}
