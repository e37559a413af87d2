import { __escapeIdentifier } from './__escapeIdentifier.js'

// How a function prints: the name it has in Hog and its number of parameters.
export function __functionText(fn) {
    const name = (fn.name || 'lambda')
        .replace(/^__x_/, '')
        .replace(/\$[0-9]+$/, '')
        .replace(/\$([0-9a-f]+)_/g, (_, code) => String.fromCodePoint(parseInt(code, 16)))
    return 'fn<' + __escapeIdentifier(name) + '(' + fn.length + ')>'
}
