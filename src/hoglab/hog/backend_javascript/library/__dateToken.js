import { __DateToString } from './__DateToString.js'
import { __isoWeek } from './__isoWeek.js'
import { __offsetText } from './__offsetText.js'
import { __twoDigits } from './__twoDigits.js'
import { __utcMilliseconds } from './__utcMilliseconds.js'

// What one token of formatDateTime stands for; nothing for an unknown one.
export function __dateToken(token, clock) {
    const months = ['January', 'February', 'March', 'April', 'May', 'June', 'July', 'August', 'September', 'October', 'November', 'December']
    const days = ['Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday', 'Sunday']
    const two = __twoDigits
    const year = ('000' + clock.year).slice(-4)
    const hour12 = two(clock.hour % 12 || 12)
    const half = clock.hour < 12 ? 'AM' : 'PM'
    const midnight = (month, day) => __utcMilliseconds(clock.year, month, day, 0, 0, 0, 0)
    const dayOfYear = (midnight(clock.month, clock.day) - midnight(1, 1)) / 86400000 + 1
    const minutes = two(clock.hour) + ':' + two(clock.minute)
    const texts = {
        a: days[clock.weekday - 1].slice(0, 3),
        b: months[clock.month - 1].slice(0, 3),
        c: two(clock.month),
        C: year.slice(2),
        d: two(clock.day),
        D: two(clock.month) + '/' + two(clock.day) + '/' + year.slice(2),
        e: String(clock.day),
        f: ('00' + clock.millisecond).slice(-3),
        F: __DateToString(clock),
        g: year.slice(2),
        G: year,
        h: hour12,
        H: two(clock.hour),
        i: two(clock.minute),
        I: hour12,
        j: ('00' + dayOfYear).slice(-3),
        k: two(clock.hour),
        l: hour12,
        m: two(clock.month),
        M: months[clock.month - 1],
        n: '\n',
        p: half,
        Q: String(Math.floor((clock.month + 2) / 3)),
        r: hour12 + ':' + two(clock.minute) + ' ' + half,
        R: minutes,
        s: two(clock.second),
        S: two(clock.second),
        t: '\t',
        T: minutes + ':' + two(clock.second),
        u: String(clock.weekday),
        V: two(__isoWeek(clock)),
        w: String(clock.weekday),
        W: days[clock.weekday - 1],
        y: year.slice(2),
        Y: year,
        z: __offsetText(clock.offset, ''),
        '%': '%',
    }
    return Object.prototype.hasOwnProperty.call(texts, token) ? texts[token] : ''
}
