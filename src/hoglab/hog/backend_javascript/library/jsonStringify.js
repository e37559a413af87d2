import { __plain } from './__plain.js'

export function jsonStringify(value, indent) {
    return JSON.stringify(__plain(value, []), null, typeof indent === 'number' ? Math.floor(indent) : 0)
}
