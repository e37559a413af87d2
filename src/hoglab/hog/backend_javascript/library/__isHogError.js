// Whether a value is an error: one of Hog's own, or one that JavaScript threw.
export function __isHogError(value) {
    return (
        value !== null &&
        typeof value === 'object' &&
        (value.__hogError__ === true || Object.prototype.toString.call(value) === '[object Error]')
    )
}
