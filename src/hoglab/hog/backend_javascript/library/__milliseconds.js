// Whole milliseconds of seconds; what a double leaves of a whole number of them counts as that number.
export function __milliseconds(seconds) {
    const exact = seconds * 1000
    const nearest = Math.round(exact)
    return Math.abs(exact - nearest) < 0.05 ? nearest : Math.trunc(exact)
}
