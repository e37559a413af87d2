"""Site functions: the code that a browser runs for a function of type `site_app` or `site_destination`.

The artefact is one function expression. A browser's SDK calls it and then `.init({posthog, callback})`; `init`
gives `{processEvent}` where the source exports `onEvent`. spec: hog-language 11.5.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hoglab.hog import TEMPLATE, HogSourceError, Input, JavaScript, Path, Program, compile_template, map_texts
from hoglab.hog.codegen import exports_function, in_order, library_code

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hoglab.hog import Environment


@dataclass(frozen=True, slots=True)
class SiteMapping:
    """One enabled mapping: the filter of its events (None: all), and the inputs that replace those of the function."""

    filter: Program | None
    inputs: tuple[Input, ...] = ()


def compile_site_function(
    source: str,
    inputs: Sequence[Input] = (),
    filters: Program | None = None,
    mappings: Sequence[SiteMapping] = (),
    env: Environment = TEMPLATE,
) -> str:
    """Return the `transpiled` text of a site function.

    `source` is a JavaScript module that may export `onLoad` and `onEvent`. `inputs` come in the order in which they
    are to be computed; those of mode `hog` are templates. For the events that `filters` matches, `onEvent` is called
    once for each mapping whose filter matches too; without mappings it is never called.

    Raises `HogSourceError` for templates and filters that cannot be JavaScript, with `path` set to the place of a
    template, and for what `source` imports.
    """
    writer = _Writer(env)
    build = writer.build_inputs(inputs)
    process = writer.process_event(filters, mappings)
    parts = [
        "(function() {",
        library_code(writer.used),
        build,
        f"const source = {exports_function(source)}();",
        process,
        _INIT,
        "return { init: init };",
        "})",
    ]
    return "\n".join(parts)


def transpile_value(value: Any, env: Environment = TEMPLATE) -> JavaScript:
    """Return the expression for an input's value, each text inside it a template.

    Raises the errors of `compile_site_function`.
    """
    writer = _Writer(env)
    code = writer.value(Input("", value, "hog"))
    return JavaScript(code, tuple(in_order(writer.used)))


class _Writer:
    """Writes the parts; `used` collects the library functions that they need."""

    def __init__(self, env: Environment) -> None:
        self.env = env
        self.used: set[str] = set()

    def code(self, program: Program) -> str:
        javascript = program.javascript
        self.used.update(javascript.stl)
        return javascript.code

    def filter(self, program: Program | None) -> str:
        return "true" if program is None else self.code(program)

    def build_inputs(self, inputs: Sequence[Input]) -> str:
        constants = [item for item in inputs if not is_templated(item)]
        templated = [item for item in inputs if is_templated(item)]
        lines = ["function buildInputs(globals, initial) {", "let inputs = {"]
        lines += [f"{json.dumps(item.key)}: {json.dumps(item.value)}," for item in constants]
        lines += ["};", "let __getGlobal = (key) => key === 'inputs' ? inputs : globals[key];"]
        if templated:
            lines.append("function getInputsKey(key, initial) { try { switch (key) {")
            lines += [f"case {json.dumps(item.key)}: return {self.value(item)};" for item in templated]
            lines += [
                "default: return null; } } catch (e) {",
                "if(!initial) {console.error('[POSTHOG-JS] Unable to compute value for inputs', key, e);}",
                "return null } }",
            ]
            lines += [
                f"inputs[{json.dumps(item.key)}] = getInputsKey({json.dumps(item.key)}, initial);"
                for item in templated
            ]
        return "\n".join([*lines, "return inputs;}"])

    def value(self, item: Input) -> str:
        """Return the expression for the value of an input, its texts compiled as templates if they are such."""
        return self.written(
            map_texts(item.value, self.leaf, (item.key,)) if item.mode == "hog" else item.value
        )

    def leaf(self, text: str, path: Path) -> _Code:
        try:
            return _Code(self.code(compile_template(text, self.env)))
        except HogSourceError as error:
            error.path = path
            raise

    def written(self, value: Any) -> str:
        if isinstance(value, _Code):
            return value.text
        if isinstance(value, dict):
            return (
                "{"
                + ", ".join(f"[{json.dumps(key)}]: {self.written(part)}" for key, part in value.items())
                + "}"
            )
        if isinstance(value, list):
            return f"[{', '.join(map(self.written, value))}]"
        return json.dumps(value)

    def process_event(self, filters: Program | None, mappings: Sequence[SiteMapping]) -> str:
        calls = [self.mapping(mapping) for mapping in mappings]
        return "\n".join(
            [_PROCESS, f"const filterMatches = {self.filter(filters)};", _FILTERED, *calls, "} }"]
        )

    def mapping(self, mapping: SiteMapping) -> str:
        lines = [
            f"if ({self.filter(mapping.filter)}) {{(function (){{",
            "const newInputs = structuredClone(inputs);",
            "const __getGlobal = (key) => key === 'inputs' ? newInputs : globals[key];",
        ]
        lines += [
            f"try {{ newInputs[{json.dumps(item.key)}] = {self.value(item)}; }} catch (e) {{ console.error(e) }}"
            for item in mapping.inputs
        ]
        return "\n".join([*lines, "source.onEvent({ ...globals, inputs: newInputs, posthog });", "})();}"])


@dataclass(frozen=True, slots=True)
class _Code:
    """A compiled template inside an input value."""

    text: str


def is_templated(item: Input) -> bool:
    """Return whether an input has to be computed in the browser."""
    if item.mode != "hog":
        return False
    return isinstance(item.value, (dict, list)) or (isinstance(item.value, str) and "{" in item.value)


_PROCESS = """\
let processEvent = undefined;
if ('onEvent' in source) { processEvent = function processEvent(globals, posthog) {
const inputs = buildInputs(globals);
const filterGlobals = { ...globals.groups, ...globals.event, person: globals.person, inputs, \
pdi: { distinct_id: globals.event.distinct_id, person: globals.person } };
let __getGlobal = (key) => filterGlobals[key];"""

_FILTERED = "if (!filterMatches) { return; }"

_INIT = """\
function init(config) {
const posthog = config.posthog;
const callback = config.callback;
const loaded = (success) => { if (callback) { callback(success); } };
if ('onLoad' in source) {
const globals = { person: { properties: posthog.get_property('$stored_person_properties') } };
try {
const result = source.onLoad({ inputs: buildInputs(globals, true), posthog: posthog });
if (result && typeof result.then === 'function') {
result.then(() => loaded(true), (error) => { console.error(error); loaded(false); });
} else { loaded(true); }
} catch (error) { console.error(error); loaded(false); }
} else { loaded(true); }
return processEvent ? { processEvent: (globals) => processEvent(globals, posthog) } : {};
}"""
