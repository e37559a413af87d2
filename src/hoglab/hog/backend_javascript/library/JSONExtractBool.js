import { __getNestedValue } from './__getNestedValue.js'
import { __jsonRoot } from './__jsonRoot.js'

export function JSONExtractBool(json, ...path) {
    return (path.length ? __getNestedValue(json, path, true) : __jsonRoot(json)) === true
}
