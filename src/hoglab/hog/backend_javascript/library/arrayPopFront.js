export function arrayPopFront(items) {
    return Array.isArray(items) ? items.slice(1) : []
}
