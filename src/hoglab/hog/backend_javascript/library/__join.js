import { __isNull } from './__isNull.js'
import { __scalarText } from './__scalarText.js'

// The elements as text with a separator between them; null and arrays that hold themselves are empty.
export function __join(items, separator, above) {
    if (above.indexOf(items) >= 0) {
        return ''
    }
    const inside = above.concat([items])
    return items
        .map((item) =>
            Array.isArray(item) ? __join(item, ',', inside) : __isNull(item) ? '' : __scalarText(item)
        )
        .join(separator)
}
