import { __isDict } from './__isDict.js'

export function keys(container) {
    if (Array.isArray(container)) {
        return container.map((_, position) => position)
    }
    return __isDict(container) ? Object.keys(container) : []
}
