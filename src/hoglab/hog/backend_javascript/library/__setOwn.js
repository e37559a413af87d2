// Sets a member of an object, whatever its name.
export function __setOwn(object, key, value) {
    if (key === '__proto__') {
        Object.defineProperty(object, key, { value: value, writable: true, enumerable: true, configurable: true })
    } else {
        object[key] = value
    }
}
