"""``hoglab hog compile``."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from hoglab.cli.hog.sources import FileArgument, located, read
from hoglab.terminal import echo, echo_exactly

if TYPE_CHECKING:
    from hoglab.hog import Program


class Target(StrEnum):
    """Target of the compiler."""

    BYTECODE = "bytecode"
    JAVASCRIPT = "javascript"
    PYTHON = "python"


def compile_to(
    file: FileArgument,
    to: Annotated[Target, typer.Option("--to", help="Target of the compilation.")] = Target.BYTECODE,
) -> None:
    """Compile a program and print the result alone.

    Bytecode is the JSON array that Hog's machines run. JavaScript is the body of a function for node or a browser,
    without dependencies; it reads globals with a function __getGlobal(name) of its surroundings. Python is the
    generated code as text.
    """
    from hoglab import hog

    source = read(file)
    try:
        artefact = _artefact(hog.compile_program(source, hog.ANY), to)
    except hog.HogSourceError as error:
        echo(located(file, source, error.diagnostic()), err=True)
        raise typer.Exit(1) from None
    echo_exactly(artefact)


def _artefact(program: Program, to: Target) -> str:
    if to is Target.BYTECODE:
        return json.dumps(program.bytecode, ensure_ascii=False, separators=(",", ":"))
    return program.javascript.text if to is Target.JAVASCRIPT else program.python
