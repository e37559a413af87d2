import { __isNull } from './__isNull.js'
import { __ordered } from './__ordered.js'
import { __toText } from './__toText.js'

export function sortableSemver(version) {
    const found = __isNull(version) ? null : /[0-9]+(?:\.[0-9]+)+/.exec(__toText(version).slice(0, 1000))
    const parts = found ? found[0].split('.').map((part) => Math.min(parseInt(part, 10), 9007199254740992)) : []
    return __ordered(parts, () => parts.map((part) => ('000000000000000' + part).slice(-16)).join('.'))
}
