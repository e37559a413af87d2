import { __utcMilliseconds } from './__utcMilliseconds.js'

// How far a zone's clocks are ahead of UTC at a Unix time, both in milliseconds.
export function __zoneOffset(milliseconds, zone) {
    if (/^(UTC|GMT)$/i.test(zone)) {
        return 0
    }
    if (!(Math.abs(milliseconds) <= 8.64e15)) {
        return NaN // no moment that JavaScript knows
    }
    const fixed = /^UTC([+-])([0-9]{1,2})(?::?([0-9]{2}))?$/i.exec(zone)
    if (fixed && Number(fixed[2]) < 24) {
        const minutes = Number(fixed[2]) * 60 + Number(fixed[3] || 0)
        return (fixed[1] === '-' ? -minutes : minutes) * 60000
    }
    if (!/^[A-Za-z]/.test(zone)) {
        throw new Error('Unknown time zone: ' + zone.slice(0, 64))
    }
    let format
    try {
        format = new Intl.DateTimeFormat('en-US', {
            timeZone: zone, hourCycle: 'h23', era: 'short', year: 'numeric', month: 'numeric', day: 'numeric',
            hour: 'numeric', minute: 'numeric', second: 'numeric',
        })
    } catch (error) {
        throw new Error('Unknown time zone: ' + zone.slice(0, 64))
    }
    const parts = {}
    format.formatToParts(milliseconds).forEach((part) => {
        parts[part.type] = part.value
    })
    const year = /^B/.test(parts.era) ? 1 - Number(parts.year) : Number(parts.year)
    const local = __utcMilliseconds(year, Number(parts.month), Number(parts.day), Number(parts.hour) % 24, Number(parts.minute), Number(parts.second), 0)
    return local - Math.floor(milliseconds / 1000) * 1000
}
