// Whether a value is null; what a function without `return` gives is undefined and counts as null.
export function __isNull(value) {
    return value === null || value === undefined
}
