import { __parsed } from './__parsed.js'
import { __toText } from './__toText.js'

export function isValidJSON(text) {
    return __parsed(__toText(text)) !== undefined
}
