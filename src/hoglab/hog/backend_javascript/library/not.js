export function not(value) {
    return !value
}
