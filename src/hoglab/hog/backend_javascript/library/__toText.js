import { __join } from './__join.js'
import { __scalarText } from './__scalarText.js'

// A value as JavaScript's own String() has it for Hog values: arrays are joined with commas.
export function __toText(value) {
    return Array.isArray(value) ? __join(value, ',', []) : __scalarText(value)
}
