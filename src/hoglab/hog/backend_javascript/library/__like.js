import { __toText } from './__toText.js'

// Whether a pattern of `like` occurs in a text: % is any run, _ any character, neither a line break.
export function __like(text, pattern, ignoreCase) {
    const core = __toText(pattern).replace(/^%+/, '').replace(/%+$/, '')
    const source = __toText(text)
    if (!/[%_]/.test(core)) {
        return ignoreCase ? source.toLowerCase().includes(core.toLowerCase()) : source.includes(core)
    }
    const escaped = core.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&')
    const wild = escaped.replace(/%+/g, '[^\\n]*').replace(/_/g, '[^\\n]')
    return new RegExp(wild, ignoreCase ? 'iu' : 'u').test(source)
}
