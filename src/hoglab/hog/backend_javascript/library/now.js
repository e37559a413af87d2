import { __toHogDateTime } from './__toHogDateTime.js'

export function now() {
    return __toHogDateTime(Date.now() / 1000, 'UTC')
}
