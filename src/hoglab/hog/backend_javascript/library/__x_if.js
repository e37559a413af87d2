export function __x_if(condition, then, otherwise) {
    return condition ? then : otherwise
}
