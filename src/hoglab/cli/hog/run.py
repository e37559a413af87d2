"""``hoglab hog run``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hoglab.cli.hog.sources import FileArgument, GlobalsOption, located, read, read_globals
from hoglab.terminal import echo, plain_console

if TYPE_CHECKING:
    from hoglab.hog import HogSourceError, Result, TraceStep

TRACE_LINES = 10_000
"""Maximum number of statements in a trace."""
TRACE_WIDTH = 120
"""Maximum number of characters of a statement or value in a trace."""


def run(
    file: FileArgument,
    globals_file: GlobalsOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print result, printed lines, error, steps and duration as JSON.")
    ] = False,
    trace: Annotated[
        bool,
        typer.Option("--trace", help="Show each statement, with the values assigned, on standard error."),
    ] = False,
) -> None:
    """Run a program.

    Prints what the program prints, then its result as one line of JSON (nothing when it is null). An uncaught
    error goes to standard error with its position, and the status is 1.
    """
    from hoglab import hog

    source = read(file)
    variables = read_globals(globals_file)
    try:
        result = hog.trace(source, _Tracer().show, variables) if trace else hog.run(source, variables)
    except hog.HogSourceError as error:
        if as_json:
            echo(json.dumps(_failure(error)))
        else:
            echo(located(file, source, error.diagnostic()), err=True)
        raise typer.Exit(1) from None
    if as_json:
        echo(json.dumps(_summary(result), ensure_ascii=False))
    else:
        for line in result.printed:
            echo(line)
        if result.error is not None:
            echo(f"{file}: {result.error}", err=True)
        elif result.value is not None:
            echo(json.dumps(result.json, ensure_ascii=False))
    if result.error is not None:
        raise typer.Exit(1)


class _Tracer:
    """Writes statements to standard error, up to `TRACE_LINES` of them."""

    def __init__(self) -> None:

        self.console = plain_console(stderr=True, soft_wrap=True, highlight=False)
        self.lines = 0

    def show(self, step: TraceStep) -> None:
        from rich.text import Text

        self.lines += 1
        if self.lines > TRACE_LINES:
            if self.lines == TRACE_LINES + 1:
                self.console.print(Text(f"... the trace ends after {TRACE_LINES} lines", style="dim"))
            return
        line = Text(f"{step.line:5}  ", style="dim").append("  " * step.depth).append(_cut(step.text))
        for name, value in step.values:
            line.append(f"   {name} = {_cut(value)}", style="cyan")
        self.console.print(line)


def _cut(text: str) -> str:
    return text if len(text) <= TRACE_WIDTH else f"{text[: TRACE_WIDTH - 3]}..."


def _summary(result: Result) -> dict[str, Any]:
    error = result.error
    return {
        "result": result.json if error is None else None,
        "printed": list(result.printed),
        "error": None
        if error is None
        else {
            "message": error.message,
            "kind": error.kind,
            "type": error.type,
            "line": error.line,
            "column": error.column,
        },
        "steps": result.steps,
        "duration_us": result.duration_us,
    }


def _failure(error: HogSourceError) -> dict[str, Any]:
    diagnostic = error.diagnostic()
    shown = {
        "message": diagnostic.message,
        "kind": diagnostic.code,
        "type": None,
        "line": diagnostic.line,
        "column": diagnostic.column,
    }
    return {"result": None, "printed": [], "error": shown, "steps": 0, "duration_us": 0}
