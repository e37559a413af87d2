// The Unix time in milliseconds of a calendar time in UTC; the first century is not the twentieth.
export function __utcMilliseconds(year, month, day, hour, minute, second, millisecond) {
    const date = new Date(0)
    date.setUTCFullYear(year, month - 1, day)
    date.setUTCHours(hour, minute, second, millisecond)
    return date.getTime()
}
