// Whether a value is a calendar day.
export function __isHogDate(value) {
    return value !== null && typeof value === 'object' && value.__hogDate__ === true
}
