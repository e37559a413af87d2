"""``hoglab hog check``."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hoglab.cli.errors import OperatorError
from hoglab.cli.hog.sources import FilesArgument, GlobalsOption, located, read, read_globals
from hoglab.terminal import echo

if TYPE_CHECKING:
    from hoglab.hog import Diagnostic, Environment

SHOWN = ("severity", "code", "message", "line", "column", "start", "end", "hint")


class TextKind(StrEnum):
    """Kind of a text: the language alone, or its use in a hog function."""

    PROGRAM = "program"
    EXPRESSION = "expression"
    TEMPLATE = "template"
    FILTER = "filter"
    DESTINATION = "destination"
    TRANSFORMATION = "transformation"


BODIES = frozenset({TextKind.DESTINATION, TextKind.TRANSFORMATION})
"""Programs of hog functions, which may call what the server adds to the language."""


def check(
    files: FilesArgument,
    kind: Annotated[
        TextKind,
        typer.Option("--kind", help="Kind of the files, which decides what they may call."),
    ] = TextKind.PROGRAM,
    globals_file: GlobalsOption = None,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings make the status 1, too.")] = False,
    reads: Annotated[
        bool, typer.Option("--reads", help="Show what each file reads of its globals as well.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON array with the findings of each file.")
    ] = False,
) -> None:
    """List errors and doubtful places of programs, without running them. The status is 1 when there are errors.

    Without --kind, functions of every kind may be called and any globals be read. With a kind of function, and with
    --globals (those in that file), names that do not exist are reported.
    """
    known = read_globals(globals_file) if globals_file is not None else None
    failing = {"error", "warning"} if strict else {"error"}
    answers: list[dict[str, Any]] = []
    failed = False
    for file in files:
        try:
            source = read(file)
        except OperatorError as error:
            echo(f"hoglab: {error}", err=True)
            failed = True
            continue
        findings, paths = _findings(source, kind, known, reads=reads)
        failed = failed or any(finding.severity in failing for finding in findings)
        if as_json:
            shown = [{name: getattr(finding, name) for name in SHOWN} for finding in findings]
            answers.append({"file": file, "findings": shown, **({"reads": paths} if reads else {})})
        else:
            _show(file, source, findings, paths if reads else [])
    if as_json:
        echo(json.dumps(answers, ensure_ascii=False))
    if failed:
        raise typer.Exit(1)


def _findings(
    source: str, kind: TextKind, known: dict[str, Any] | None, *, reads: bool
) -> tuple[list[Diagnostic], list[str]]:
    from hoglab import hog

    env = _environment(kind)
    text_kind: Any = "program" if kind in BODIES else kind.value
    findings = hog.check(source, env, kind=text_kind, known=known)
    paths: list[str] = []
    if reads:
        try:
            paths = list(hog.reads(source, env, kind="expression" if kind is TextKind.FILTER else text_kind))
        except hog.HogSourceError:
            paths = []  # the error is among the findings
    return findings, paths


def _environment(kind: TextKind) -> Environment:
    from hoglab import hog
    from hoglab.filters.hog import FILTER
    from hoglab.functions.environments import TEMPLATES, any_body, body_environment

    if kind in BODIES:
        return body_environment(kind.value)
    if kind is TextKind.PROGRAM:
        return any_body()
    return {TextKind.FILTER: FILTER, TextKind.TEMPLATE: TEMPLATES}.get(kind, hog.ANY)


def _show(file: str, source: str, findings: list[Diagnostic], paths: list[str]) -> None:
    for finding in findings:
        echo(located(file, source, finding))
    if not findings:
        echo(f"{file}: no findings")
    for path in paths:
        echo(f"{file} reads {path}")
