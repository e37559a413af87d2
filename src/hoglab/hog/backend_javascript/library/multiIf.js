export function multiIf(...parts) {
    for (let at = 0; at + 1 < parts.length; at += 2) {
        if (parts[at]) {
            return parts[at + 1]
        }
    }
    return parts.length % 2 ? parts[parts.length - 1] : null
}
