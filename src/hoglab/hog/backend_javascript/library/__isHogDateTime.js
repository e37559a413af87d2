// Whether a value is a moment with the zone it is shown in.
export function __isHogDateTime(value) {
    return value !== null && typeof value === 'object' && value.__hogDateTime__ === true
}
