"""The program of a function: its limits and its compilation (spec: hog-functions-api 4.5, 9)."""

from __future__ import annotations

from typing import Any

from hoglab.functions.environments import body_environment
from hoglab.functions.errors import InvalidFunctionError
from hoglab.hog import HogSourceError, compile_program, nodes, parse_program

MAX_CODE_BYTES = 102_400

_TOO_LARGE = (
    "HOG code exceeds maximum size of 100KB. Please simplify your code or contact support if you need "
    "this limit increased."
)
_RESERVED = (
    "Reserved for PostHog's own use and not callable from a function's code: {}. Use the matching workflow step "
    "or destination template instead."
)
_ERRORS = "Hog code has errors."
RESERVED = ("sendEmail",)
"""Functions that a program may name only if it comes from a template that uses them itself."""


def check_size(hog: str) -> None:
    """Raise `InvalidFunctionError` for code that is too long."""
    if len(hog.encode("utf-8", "surrogatepass")) > MAX_CODE_BYTES:
        raise InvalidFunctionError(_TOO_LARGE, "hog")


def compile_code(hog: str, function_type: str | None) -> list[Any]:
    """Return the bytecode of a program. Raises `InvalidFunctionError` with the place of the error in ``extra``."""
    try:
        program = compile_program(hog, body_environment(function_type))
        program.function  # noqa: B018 - generating the code finds what is nested too deeply
    except HogSourceError as error:
        detail = error.message if error.code == "hyphen" else _ERRORS
        raise _refused(error.message, error.line, error.column, detail) from None
    for finding in program.errors:
        raise _refused(finding.message, finding.line, finding.column)
    return program.bytecode


def check_reserved(hog: str, template_code: str) -> None:
    """Refuse a program that names what is `RESERVED` and what its template does not name.

    ``template_code`` is empty for a function without a template. Raises `InvalidFunctionError`.
    """
    reserved = _reserved_names(hog) - _reserved_names(template_code)
    if reserved:
        raise InvalidFunctionError(_RESERVED.format(", ".join(sorted(reserved))), "hog")


def _reserved_names(hog: str) -> frozenset[str]:
    """Return the reserved names that a program calls or reads."""
    if not any(name in hog for name in RESERVED):
        return frozenset()
    named = set()
    for node in nodes.walk(parse_program(hog)):
        match node:
            case nodes.Call(name=name) | nodes.Field(chain=(name, *_)):
                named.add(name)
    return frozenset(named.intersection(RESERVED))


def _refused(message: str, line: int, column: int, detail: str = _ERRORS) -> InvalidFunctionError:
    place = {"message": message, "line": line, "column": column}
    return InvalidFunctionError(detail, "hog", extra={"extra": place})
