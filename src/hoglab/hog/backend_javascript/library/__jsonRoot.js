import { __parsed } from './__parsed.js'

// What a JSON function looks into: text is read as JSON, and is null when it is none.
export function __jsonRoot(value) {
    const found = typeof value === 'string' ? __parsed(value) : value
    return found === undefined ? null : found
}
