"""Meaning of an exception from generated code: one description for authors of programs, with the place.

Generated code carries Hog lines and columns, so the innermost of its frames in a traceback is the place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hoglab.hog.backend_python import FILE_NAME
from hoglab.hog.errors import HogLimit, HogRuntimeError, HogThrow, missing_global, noted_place
from hoglab.hog.rt.context import memory_text

if TYPE_CHECKING:
    from hoglab.hog.errors import Position
    from hoglab.hog.program import Program
    from hoglab.hog.rt.values import Value


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """Reason why a program ended early.

    `kind`: `throw` (an error value that nobody caught), `runtime` (the machine refused something) or `limit`.
    `message` is the full text; `type` and `payload` belong to a thrown error value. `line` and `column`
    count from 1 and are None when the place is unknown. `path` is the place of the template among inputs.
    """

    kind: str
    message: str
    type: str | None = None
    payload: Value = None
    line: int | None = None
    column: int | None = None
    path: tuple[str | int, ...] = ()

    def __str__(self) -> str:
        where = "" if self.line is None else f" (line {self.line}, column {self.column})"
        return f"{self.message}{where}"


def explain(error: BaseException, program: Program) -> ErrorInfo | None:
    """Explain an exception from generated code as an error of the program.

    The result is None for exceptions that are not about the program, such as keyboard interrupts.
    """
    line, column, innermost = _place(error)
    position, path = (None, ()) if line is None else program.locate(line, column)
    if isinstance(error, HogThrow):
        thrown = error.error
        return _info("throw", str(error), position, path, thrown.type, thrown.payload)
    if isinstance(error, HogRuntimeError):
        return _info("runtime", error.message, position, path)
    if isinstance(error, HogLimit):
        return _info("limit", error.message, position, path)
    if isinstance(error, KeyError) and innermost and line is not None:
        chain = program.generated.chains.get((line, column))
        if chain is not None:
            return _info("runtime", missing_global(chain), position, path)
    if isinstance(error, RecursionError):
        depth = program.env.limits.call_depth
        return _info("limit", f"Call stack exceeded maximum length of {depth}", position, path)
    if isinstance(error, MemoryError):
        limit = program.env.limits.memory_bytes
        return _info("limit", memory_text(limit, limit), position, path)
    if isinstance(error, OverflowError):
        return _info("runtime", "Number is out of range", position, path)
    if isinstance(error, Exception):
        text = f"Internal error: {type(error).__name__}: {error}"
        return _info("runtime", text[:500], position, path)
    return None


def _info(
    kind: str,
    message: str,
    position: Position | None,
    path: tuple[str | int, ...],
    error_type: str | None = None,
    payload: Value = None,
) -> ErrorInfo:
    line = None if position is None else position.line
    column = None if position is None else position.column
    return ErrorInfo(kind, message, error_type, payload, line, column, path)


def _place(error: BaseException) -> tuple[int | None, int, bool]:
    """Return the line and column of the innermost generated code in a traceback, and whether it raised the error.

    The interpreter notes the place on the error.
    """
    noted = noted_place(error)
    if noted is not None:
        return *noted, False
    innermost = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == FILE_NAME:
            innermost = trace
        trace = trace.tb_next
    if innermost is None:
        return None, 0, False
    positions = list(innermost.tb_frame.f_code.co_positions())
    line, _, column, _ = positions[innermost.tb_lasti // 2]
    return line, column or 0, innermost.tb_next is None
