export function tuple(...items) {
    Object.defineProperty(items, '__isHogTuple', { value: true })
    return items
}
