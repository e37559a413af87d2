"""``hoglab hog``: the language alone."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hoglab.cli.errors import OperatorError

if TYPE_CHECKING:
    from hoglab.hog import HogSourceError, Result

hog_app = typer.Typer(help="Run and check programs in the Hog language.", no_args_is_help=True)

FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="A Hog program; - reads standard input.")]


@hog_app.command()
def run(
    file: FileArgument,
    globals_file: Annotated[
        Path | None,
        typer.Option(
            "--globals", metavar="FILE", help="JSON object with the program's globals.", show_default=False
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print result, printed lines, error, steps and duration as JSON.")
    ] = False,
) -> None:
    """Run a program.

    Prints what the program prints, then its result as one line of JSON (nothing when it is null). An uncaught
    error goes to standard error with its position, and the status is 1.
    """
    from hoglab import hog

    source = _read(file)
    variables = _globals(globals_file)
    try:
        result = hog.run(source, variables)
    except hog.HogSourceError as error:
        if as_json:
            typer.echo(json.dumps(_failure(error)))
        else:
            typer.echo(_located(file, source, error), err=True)
        raise typer.Exit(1) from None
    if as_json:
        typer.echo(json.dumps(_summary(result), ensure_ascii=False))
    else:
        for line in result.printed:
            typer.echo(line)
        if result.error is not None:
            typer.echo(f"{file}: {result.error}", err=True)
        elif result.value is not None:
            typer.echo(json.dumps(result.json, ensure_ascii=False))
    if result.error is not None:
        raise typer.Exit(1)


@hog_app.command()
def check(
    file: FileArgument,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Say what is wrong with a program, or doubtful, without running it. The status is 1 when it has errors."""
    from hoglab import hog

    source = _read(file)
    findings = hog.check(source)
    if as_json:
        shown = [
            {name: getattr(one, name) for name in ("severity", "code", "message", "line", "column", "hint")}
            for one in findings
        ]
        typer.echo(json.dumps(shown, ensure_ascii=False))
    else:
        for one in findings:
            typer.echo(f"{file}:{one.line}:{one.column}: {one.severity}: {one.message} [{one.code}]")
            typer.echo(_excerpt(source, one.line, one.column))
            if one.hint:
                typer.echo(f"  hint: {one.hint}")
        if not findings:
            typer.echo(f"{file}: no findings")
    if any(one.severity == "error" for one in findings):
        raise typer.Exit(1)


def _read(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise OperatorError(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise OperatorError(f"{file} is not UTF-8 text") from error


def _globals(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        found = json.loads(_read(str(path)))
    except ValueError as error:
        raise OperatorError(f"{path} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise OperatorError(f"{path} must hold a JSON object")
    return found


def _located(file: str, source: str, error: HogSourceError) -> str:
    one = error.diagnostic()
    lines = [f"{file}:{one.line}:{one.column}: {one.message}", _excerpt(source, one.line, one.column)]
    if one.hint:
        lines.append(f"  hint: {one.hint}")
    return "\n".join(lines)


def _excerpt(source: str, line: int, column: int) -> str:
    """The line of a finding with a caret below its column."""
    lines = source.splitlines()
    text = lines[line - 1].replace("\t", " ") if 0 < line <= len(lines) else ""
    return f"  {text}\n  {' ' * (column - 1)}^"


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
    one = error.diagnostic()
    shown = {"message": one.message, "kind": one.code, "type": None, "line": one.line, "column": one.column}
    return {"result": None, "printed": [], "error": shown, "steps": 0, "duration_us": 0}
