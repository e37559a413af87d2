import { __revived } from './__revived.js'

// The value of a JSON text, undefined when it is none.
export function __parsed(text) {
    try {
        return __revived(JSON.parse(text))
    } catch (error) {
        return undefined
    }
}
