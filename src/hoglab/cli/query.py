"""``hoglab query``: SQL over the events of a project of a running server."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hoglab.cli.errors import OperatorError
from hoglab.cli.options import HostOption, JsonOption, KeyOption, ProjectOption, api
from hoglab.terminal import echo, echo_exactly, plain_console

if TYPE_CHECKING:
    from collections.abc import Mapping


def query(
    text: Annotated[str, typer.Argument(metavar="SELECT", help="A SELECT over events.")],
    as_json: JsonOption = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    project: ProjectOption = 1,
    host: HostOption = None,
    key: KeyOption = None,
) -> None:
    """Answer a SELECT over the events of a project: a table, CSV or JSON.

    The project's time zone counts. At most 10,000 rows are returned, 100 without LIMIT; standard error says whether
    there are more.
    """
    if as_json and as_csv:
        raise OperatorError("--json and --csv exclude each other")
    answer = api(host, key, project).post("/query/", {"query": {"kind": "HogQLQuery", "query": text}})
    if as_json:
        rows = {name: answer[name] for name in ("columns", "types", "results", "hasMore", "limit", "offset")}
        echo(json.dumps(rows, indent=2, ensure_ascii=False))
    elif as_csv:
        echo_exactly(_csv(answer), nl=False)
    else:
        _print_table(answer)
    if answer["hasMore"]:
        echo(f"hoglab: there are more rows than {answer['limit']}: raise LIMIT, or add OFFSET", err=True)


def _csv(answer: Mapping[str, Any]) -> str:
    """Return an answer as CSV, in which no text is a formula to a spreadsheet."""
    from hoglab.storage.event_store.export import spreadsheet_text

    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    for row in (answer["columns"], *answer["results"]):
        writer.writerow([spreadsheet_text(value) if isinstance(value, str) else value for value in row])
    return written.getvalue()


def _print_table(answer: Mapping[str, Any]) -> None:
    from hoglab.reports.tables import light_table

    table = light_table(None, *answer["columns"])
    for row in answer["results"]:
        table.add_row(*("" if value is None else str(value) for value in row))
    plain_console().print(table)
