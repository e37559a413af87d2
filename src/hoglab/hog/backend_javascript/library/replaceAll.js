import { __expectText } from './__expectText.js'
import { __isNull } from './__isNull.js'
import { __toText } from './__toText.js'

export function replaceAll(text, search, replacement) {
    if (__isNull(text)) {
        return null
    }
    const source = __expectText('replaceAll', text)
    const wanted = __toText(search)
    const other = __toText(replacement)
    return wanted ? source.split(wanted).join(other) : other + Array.from(source, (one) => one + other).join('')
}
