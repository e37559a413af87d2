import { __isDict } from './__isDict.js'

export function values(container) {
    if (Array.isArray(container)) {
        return container.slice()
    }
    return __isDict(container) ? Object.keys(container).map((key) => container[key]) : []
}
