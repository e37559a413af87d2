export function arrayPushFront(items, value) {
    return Array.isArray(items) ? [value, ...items] : [value]
}
