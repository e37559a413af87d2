"""Hog templates inside inputs: their compiled form and their dependencies (spec: hog-functions-api 5.4-5.7)."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from hoglab.functions.site import transpile_input
from hoglab.hog import HogSourceError, Program, compile_template, map_texts, nodes
from hoglab.hog.codegen import compile_bytecode

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from hoglab.hog import Environment, Path


class TemplateError(Exception):
    """A template that cannot be compiled; the text is what people see."""


@dataclass(frozen=True, slots=True)
class TemplateDialect:
    """Dialect of templates: ``record_is_event`` makes ``record.x`` mean ``event.properties.x``."""

    environment: Environment
    record_is_event: bool = False
    browser: bool = False
    """Whether browsers fill templates in, so that they are compiled to JavaScript."""


@dataclass(frozen=True, slots=True)
class CompiledValue:
    """A value compiled (for Hog: with each of its texts replaced by its bytecode), and the inputs that it reads."""

    artefact: Any
    """Compiled form that the item keeps as ``bytecode``, or for browsers as ``transpiled``."""
    needs: frozenset[str]


def compile_value(
    value: Any, dialect: TemplateDialect, verbatim_keys: AbstractSet[str] = frozenset()
) -> CompiledValue:
    """Compile every text inside a JSON value. Raises `TemplateError` for the first wrong one."""
    needs: set[str] = set()

    def compile_text(text: str, _path: Path) -> list[Any]:
        program = _template(text, dialect.environment)
        needs.update(_needed_inputs(program))
        if dialect.record_is_event and program.tree is not None:
            return compile_bytecode(_records_as_events(program.tree))
        return program.bytecode

    if isinstance(value, dict) and verbatim_keys:
        value = {key: part for key, part in value.items() if key not in verbatim_keys}
    try:
        compiled = map_texts(value, compile_text)
        return CompiledValue(transpile_input(value) if dialect.browser else compiled, frozenset(needs))
    except HogSourceError as error:  # values that are nested too deeply, functions that no browser has
        raise TemplateError(f"Invalid template: {error.message}") from None


def _template(text: str, environment: Environment) -> Program:
    try:
        program = compile_template(text, environment)
        problems = [finding.message for finding in program.errors]
        if not problems:
            program.function  # noqa: B018 - generating the code finds what is nested too deeply
    except HogSourceError as error:
        raise TemplateError(_explained(text, error)) from None
    if problems:
        raise TemplateError(f"Invalid template: {'; '.join(sorted(set(problems)))}")
    return program


def _explained(text: str, error: HogSourceError) -> str:
    if error.code == "hyphen":
        return error.message
    if "{{" in text:
        return (
            "Invalid template: this field uses single-curly templating like {person.properties.email}. "
            f"Liquid-style {{{{ ... }}}} syntax is not supported here. ({error.message})"
        )
    return f"Invalid template: {error.message}"


def _needed_inputs(program: Program) -> set[str]:
    """Return the inputs that a template reads, as ``inputs.name`` or ``inputs['name']``."""
    input_names = set()
    for node in () if program.tree is None else nodes.walk(program.tree):
        match node:
            case nodes.Field(chain=("inputs", name, *_)):
                input_names.add(name)
            case nodes.ArrayAccess(array=nodes.Field(chain=("inputs",)), property=nodes.Constant(value=key)):
                input_names.add(str(key))
    return input_names


def _records_as_events(node: Any) -> Any:
    if isinstance(node, tuple):
        return tuple(_records_as_events(child) for child in node)
    if not isinstance(node, nodes.Node):
        return node
    if isinstance(node, nodes.Field) and node.chain[0] == "record":
        return replace(node, chain=("event", "properties", *node.chain[1:]))
    changed = {field.name: _records_as_events(getattr(node, field.name)) for field in fields(node)}
    return replace(node, **changed)
