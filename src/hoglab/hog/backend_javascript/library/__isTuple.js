// Whether an array carries the mark of a tuple.
export function __isTuple(value) {
    return Array.isArray(value) && value.__isHogTuple === true
}
