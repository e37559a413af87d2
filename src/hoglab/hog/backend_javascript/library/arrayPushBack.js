export function arrayPushBack(items, value) {
    return Array.isArray(items) ? [...items, value] : [value]
}
