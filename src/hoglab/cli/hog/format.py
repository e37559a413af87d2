"""``hoglab hog format``."""

from __future__ import annotations

from difflib import unified_diff
from pathlib import Path
from typing import Annotated

import typer

from hoglab.cli.errors import OperatorError
from hoglab.cli.hog.sources import FilesArgument, located, read
from hoglab.terminal import echo, echo_exactly


def format_files(
    files: FilesArgument,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; the status is 1 if a file is not in the style.")
    ] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Change nothing; print what would change.")] = False,
) -> None:
    """Rewrite programs in the one style of the language.

    Files are changed in place; standard input (-) goes to standard output. The meaning of a program never changes,
    and comments stay. Files that do not parse are named and left alone, and the status is 1.
    """
    failed = changes = 0
    for file in files:
        try:
            source, formatted = read(file), None
            formatted = _formatted(file, source)
            if formatted is not None:
                changes += formatted != source
                _deliver(file, source, formatted, check=check, diff=diff)
        except OperatorError as error:
            echo(f"hoglab: {error}", err=True)
            formatted = None
        failed += formatted is None
    if failed or (check and changes):
        raise typer.Exit(1)


def _formatted(file: str, source: str) -> str | None:
    from hoglab import hog

    try:
        return hog.format(source)
    except hog.HogSourceError as error:
        echo(located(file, source, error.diagnostic()), err=True)
        return None


def _deliver(file: str, source: str, formatted: str, *, check: bool, diff: bool) -> None:
    if diff:
        lines = unified_diff(
            source.splitlines(keepends=True), formatted.splitlines(keepends=True), file, f"{file} (formatted)"
        )
        echo_exactly("".join(line if line.endswith("\n") else f"{line}\n" for line in lines), nl=False)
    elif check:
        if formatted != source:
            echo(f"{file} would be changed")
    elif file == "-":
        echo_exactly(formatted, nl=False)
    elif formatted != source:
        try:
            Path(file).write_text(formatted, encoding="utf-8", newline="")
        except OSError as error:
            raise OperatorError(f"{file} cannot be written: {error.strerror}") from error
        echo(f"{file} changed", err=True)
