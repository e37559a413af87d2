export function randomFloat() {
    return Math.random()
}
