// The function itself; passed as an argument it gets no name.
export function __lambda(fn) {
    return fn
}
