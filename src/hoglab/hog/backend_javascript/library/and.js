export function and(...values) {
    return values.every((value) => !!value)
}
