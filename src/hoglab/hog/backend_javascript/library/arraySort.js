import { __toText } from './__toText.js'

export function arraySort(items) {
    if (!Array.isArray(items)) {
        return []
    }
    const numbers = items.every((item) => typeof item === 'number')
    const keyed = items.map((item, position) => ({ item: item, position: position, key: numbers ? item : __toText(item) }))
    const last = (key) => (key !== key ? 1 : 0)
    keyed.sort(
        (a, b) => last(a.key) - last(b.key) || (a.key < b.key ? -1 : a.key > b.key ? 1 : a.position - b.position)
    )
    return keyed.map((one) => one.item)
}
