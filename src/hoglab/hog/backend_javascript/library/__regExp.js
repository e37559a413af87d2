// The RegExp for a pattern in RE2's syntax. What RE2 refuses (looking around, back references) is refused.
export function __regExp(pattern, ignoreCase) {
    let flags = ignoreCase ? 'i' : ''
    let rest = pattern
    for (let found = /^\(\?([imsU]+)\)/.exec(rest); found; found = /^\(\?([imsU]+)\)/.exec(rest)) {
        flags += found[1]
        rest = rest.slice(found[0].length)
    }
    const has = (flag) => flags.indexOf(flag) >= 0
    const words = { alpha: 'A-Za-z', digit: '0-9', alnum: 'A-Za-z0-9', upper: 'A-Z', lower: 'a-z', space: '\\s', word: '\\w', punct: '!-\\/:-@\\[-`{-~', xdigit: '0-9A-Fa-f' }
    const parts = /\\Q([^]*?)(?:\\E|$)|\[:(\w+):\]|\\[^]|\(\?(?:P?<\w|[^])|\[\^?\]?|[^]/g
    let inClass = false
    let made = ''
    for (let found = parts.exec(rest); found; found = parts.exec(rest)) {
        const part = found[0]
        if (found[1] !== undefined) {
            made += found[1].replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&')
        } else if (inClass && found[2] !== undefined && words[found[2]]) {
            made += words[found[2]]
        } else if (part === '\\A' || part === '\\z') {
            made += part === '\\A' ? '(?<![^])' : '(?![^])'
        } else if (/^\\[1-9]/.test(part) || (!inClass && /^\(\?[=!]/.test(part))) {
            throw new Error('Invalid regular expression: ' + pattern)
        } else if (!inClass && part.slice(0, 2) === '(?') {
            if (part.length > 3 || part === '(?:') {
                made += part.replace('(?P<', '(?<')
            } else {
                throw new Error('Invalid regular expression: ' + pattern)
            }
        } else if (!inClass && part[0] === '[' && found[2] === undefined) {
            inClass = true
            made += part.replace(/\]$/, '\\]')
        } else {
            inClass = inClass && part !== ']'
            made += part === '.' && !inClass ? (has('s') ? '[^]' : '[^\\n]') : part
        }
    }
    const options = (has('i') ? 'i' : '') + (has('m') ? 'm' : '')
    try {
        return new RegExp(made, options + 'u')
    } catch (error) {
        return new RegExp(made, options)
    }
}
