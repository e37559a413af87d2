export function or(...values) {
    return values.some((value) => !!value)
}
