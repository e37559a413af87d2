export function __twoDigits(number) {
    return (number < 10 ? '0' : '') + number
}
