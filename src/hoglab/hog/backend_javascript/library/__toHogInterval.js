export function __toHogInterval(value, unit) {
    return { __hogInterval__: true, value: value, unit: unit }
}
