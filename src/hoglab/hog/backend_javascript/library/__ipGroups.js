// An address as its 8-bit (IPv4) or 16-bit (IPv6) groups, null when it is malformed.
export function __ipGroups(text) {
    if (text.indexOf(':') < 0) {
        const parts = text.split('.')
        const good = parts.length === 4 && parts.every((part) => /^(0|[1-9][0-9]{0,2})$/.test(part) && Number(part) < 256)
        return good ? parts.map(Number) : null
    }
    const halves = text.split('::')
    if (halves.length > 2) {
        return null
    }
    const groups = (half) => {
        const parts = half === '' ? [] : half.split(':')
        const last = parts.length ? parts[parts.length - 1] : ''
        if (last.indexOf('.') < 0) {
            return parts
        }
        const four = __ipGroups(last)
        return four ? parts.slice(0, -1).concat([(four[0] * 256 + four[1]).toString(16), (four[2] * 256 + four[3]).toString(16)]) : ['']
    }
    const head = halves[0].indexOf('.') >= 0 && halves.length > 1 ? [''] : groups(halves[0])
    const tail = halves.length > 1 ? groups(halves[1]) : []
    const gap = 8 - head.length - tail.length
    if (halves.length > 1 ? gap < 1 : gap !== 0) {
        return null
    }
    const all = head.concat(Array(gap).fill('0'), tail)
    return all.every((part) => /^[0-9A-Fa-f]{1,4}$/.test(part)) ? all.map((part) => parseInt(part, 16)) : null
}
