"""Source texts of the commands, and how these show a place in them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hoglab.cli.errors import OperatorError

if TYPE_CHECKING:
    from hoglab.hog import Diagnostic

FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="A Hog program; - reads standard input.")]
FilesArgument = Annotated[
    list[str], typer.Argument(metavar="FILES...", help="Hog programs; - reads standard input.")
]
GlobalsOption = Annotated[
    Path | None,
    typer.Option(
        "--globals", metavar="FILE", help="JSON object with the program's globals.", show_default=False
    ),
]


def read(file: str) -> str:
    """Return the text of a file, or of standard input for ``-``. Raises `OperatorError`."""
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return data.decode("utf-8")
    except OSError as error:
        raise OperatorError(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise OperatorError(f"{file} is not UTF-8 text: byte {error.start} is wrong") from error


def read_object(file: str) -> dict[str, Any]:
    """Return the JSON object in a file. Raises `OperatorError`."""
    try:
        value = json.loads(read(file))
    except (ValueError, RecursionError) as error:
        raise OperatorError(f"{file} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise OperatorError(f"{file} must hold a JSON object")
    return value


def read_globals(path: Path | None) -> dict[str, Any]:
    """Return the globals of a program; none without a file. Raises `OperatorError`."""
    return {} if path is None else read_object(str(path))


def located(file: str, source: str, diagnostic: Diagnostic) -> str:
    """Return a finding for a person: place, message, excerpt with carets, hint."""
    from hoglab.hog import excerpt

    shown = excerpt(source, diagnostic.start, diagnostic.end).replace("\n", "\n  ")
    place = f"{file}:{diagnostic.line}:{diagnostic.column}"
    text = f"{place}: {diagnostic.severity}: {diagnostic.message} [{diagnostic.code}]\n  {shown}"
    return f"{text}\n  hint: {diagnostic.hint}" if diagnostic.hint else text
