"""``hoglab hog explain``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hoglab.cli.errors import OperatorError
from hoglab.cli.hog.sources import read, read_object
from hoglab.terminal import echo, plain_console

if TYPE_CHECKING:
    from rich.text import Text

    from hoglab.filters.hog.explain import Explanation, Term

_STYLES = {True: ("yes", "green"), False: ("no", "red"), None: ("failed", "yellow")}


def explain(
    what: Annotated[
        str,
        typer.Argument(
            metavar="FILTER",
            help="A Hog expression, or the JSON of a function's filters; @FILE reads either from a file.",
        ),
    ],
    event: Annotated[
        Path,
        typer.Option(
            "--event", metavar="FILE", help="JSON of an event with event, distinct_id, properties, person."
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print the explanation as JSON.")] = False,
) -> None:
    """Say why a filter matches an event, or does not: each term with its value.

    The status is 0 when it matches, 1 when it does not or cannot be evaluated.
    """
    from hoglab.filters.hog import FilterContext
    from hoglab.filters.hog.explain import explain_expression, explain_filter
    from hoglab.filters.model import FilterError

    text = (read(what[1:]) if what.startswith("@") else what).strip()
    globals_ = _globals(read_object(str(event)))
    try:
        structure = _structure(text)
        if structure is None:
            explanation = explain_expression(text, globals_)
        else:
            explanation = explain_filter(structure, FilterContext(), globals_)
    except FilterError as error:
        raise OperatorError(f"the filter cannot be used: {error}") from error
    if as_json:
        echo(json.dumps(explanation.to_json(), ensure_ascii=False))
    else:
        _show(explanation)
    if not explanation.matches:
        raise typer.Exit(1)


def _structure(text: str) -> dict[str, Any] | None:
    """Return the JSON object or list of properties in a text; None when the text is an expression."""
    if not text.startswith(("{", "[")):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else {"properties": value}


def _globals(event: dict[str, Any]) -> dict[str, Any]:
    """Return globals of a filter for the event, which may be given as programs see it or as it is captured."""
    from hoglab.functions.runtime import filter_globals

    whole = event if isinstance(event.get("event"), dict) else {"event": event}
    row = whole["event"]
    if not isinstance(row.get("event"), str):
        raise OperatorError("the event needs a name: {'event': '...', 'properties': {...}}")
    properties = row.get("properties") or {}
    person = whole.get("person") or row.get("person")
    groups = whole.get("groups") or {}
    if not all(isinstance(part, dict) for part in (properties, person or {}, groups)):
        raise OperatorError("properties, person and groups of the event must be objects")
    filled = {
        "uuid": row.get("uuid", ""),
        "distinct_id": row.get("distinct_id", ""),
        "timestamp": row.get("timestamp", ""),
        "elements_chain": row.get("elements_chain", ""),
        "event": row["event"],
        "properties": properties,
    }
    known = {"event": filled, "groups": groups}
    if person is not None:
        known["person"] = {"id": person.get("id", ""), "properties": person.get("properties") or {}}
    return filter_globals(known)


def _show(explanation: Explanation) -> None:
    from rich.text import Text

    console = plain_console(soft_wrap=True, highlight=False)
    for line in _lines(explanation.term, 0):
        console.print(line)
    if explanation.note:
        console.print(Text(explanation.note))
    if explanation.error:
        console.print(Text(f"error: {explanation.error}"))
    verdict, style = ("matches", "bold green") if explanation.matches else ("does not match", "bold red")
    console.print(Text(verdict, style=style))


def _lines(term: Term, depth: int) -> list[Text]:
    from rich.text import Text

    word, style = _STYLES[term.holds]
    line = Text("  " * depth).append(f"{word:6} ", style=style)
    if term.kind != "term":
        line.append(f"{term.kind} of ", style="dim")
    line.append(term.text)
    if term.kind == "term" and not isinstance(term.value, bool) and term.error is None:
        line.append(f" = {_value(term.value)}")
    seen = ", ".join(f"{path} = {_value(value)}" for path, value in term.sees)
    if seen:
        line.append(f"   ({seen})", style="dim")
    if term.error:
        line.append(f"   {term.error}", style="yellow")
    return [line, *(inner for inner_term in term.terms for inner in _lines(inner_term, depth + 1))]


def _value(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."
