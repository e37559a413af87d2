import { __ipGroups } from './__ipGroups.js'

export function isIPAddressInRange(address, range) {
    if (typeof address !== 'string' || typeof range !== 'string' || !/^[0-9A-Fa-f.:]{2,45}\/[0-9]{1,3}$/.test(range)) {
        return false
    }
    const length = Number(range.split('/')[1])
    const found = __ipGroups(address)
    const network = __ipGroups(range.split('/')[0])
    if (!found || !network || found.length !== network.length) {
        return false
    }
    const width = found.length === 4 ? 8 : 16
    if (length > width * found.length) {
        return false
    }
    return found.every((group, at) => {
        const open = Math.pow(2, Math.min(width, Math.max(0, width * (at + 1) - length)))
        return Math.floor(group / open) === Math.floor(network[at] / open)
    })
}
