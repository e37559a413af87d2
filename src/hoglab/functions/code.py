"""The program of a function: its limits and its compilation (spec: hog-functions-api 4.5, 9)."""

from __future__ import annotations

from typing import Any

from hoglab.functions.errors import InvalidFunctionError
from hoglab.functions.templating import EVENT_FUNCTIONS, HOST_FUNCTIONS
from hoglab.hog.backend_bytecode import compile_bytecode
from hoglab.hog.errors import HogSourceError, position_at
from hoglab.hog.parser import parse_program
from hoglab.hog.stdlib import LIBRARY
from hoglab.hog.symbols import resolve

MAX_CODE_BYTES = 102_400

_TOO_LARGE = (
    "HOG code exceeds maximum size of 100KB. Please simplify your code or contact support if you need "
    "this limit increased."
)
_ERRORS = "Hog code has errors."


def check_size(hog: str) -> None:
    """Raises `InvalidFunctionError` for code that is too long."""
    if len(hog.encode("utf-8", "surrogatepass")) > MAX_CODE_BYTES:
        raise InvalidFunctionError(_TOO_LARGE, "hog")


def compile_code(hog: str, function_type: str | None) -> list[Any]:
    """The bytecode of a program. Raises `InvalidFunctionError` with the place of the mistake in ``extra``."""
    try:
        tree = parse_program(hog)
        found = resolve(tree, hog)
        bytecode = compile_bytecode(tree)
    except HogSourceError as error:
        detail = error.message if error.code == "hyphen" else _ERRORS
        raise _refused(error.message, error.line, error.column, detail) from None
    offered = EVENT_FUNCTIONS if function_type == "transformation" else HOST_FUNCTIONS
    for call in found.calls:
        if call.name not in LIBRARY and call.name not in offered:
            place = position_at(hog, call.start)
            raise _refused(f"Hog function `{call.name}` is not implemented", place.line, place.column)
    return bytecode


def _refused(message: str, line: int, column: int, detail: str = _ERRORS) -> InvalidFunctionError:
    place = {"message": message, "line": line, "column": column}
    return InvalidFunctionError(detail, "hog", extra={"extra": place})
