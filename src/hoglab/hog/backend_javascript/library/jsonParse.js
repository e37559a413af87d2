import { __revived } from './__revived.js'
import { __toText } from './__toText.js'

export function jsonParse(text) {
    return __revived(JSON.parse(__toText(text)))
}
