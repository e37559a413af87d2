"""``hoglab functions dead-letters``: events that did not become runs."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from hoglab.cli.functions.options import (
    DryRunOption,
    FromOption,
    ToOption,
    function_path,
)
from hoglab.cli.options import HostOption, JsonOption, KeyOption, ProjectOption, api
from hoglab.terminal import echo

dead_letters_app = typer.Typer(help="Events that did not become runs of functions.", no_args_is_help=True)

FunctionOption = Annotated[
    str | None,
    typer.Option("--function", help="Only those of this one, by id or name.", show_default=False),
]
PATH = "/hog_functions/dead_letters/"


@dead_letters_app.command("list")
def list_letters(
    function: FunctionOption = None,
    since: FromOption = None,
    until: ToOption = None,
    as_json: JsonOption = False,
    host: HostOption = None,
    key: KeyOption = None,
    project: ProjectOption = 1,
) -> None:
    """List dead letters with the reason, those that failed last first."""
    client = api(host, key, project)
    wanted = _wanted(client, function, since, until)
    letters = list(client.pages(PATH, **wanted))
    if as_json:
        echo(json.dumps(letters))
        return
    for letter in letters:
        owner = letter["function_id"] or "(all functions)"
        echo(f"{letter['failed_at']} {letter['step']:<7} {owner} {letter['event']}: {letter['reason']}")


@dead_letters_app.command()
def retry(
    function: FunctionOption = None,
    since: FromOption = None,
    until: ToOption = None,
    dry_run: DryRunOption = False,
    host: HostOption = None,
    key: KeyOption = None,
    project: ProjectOption = 1,
) -> None:
    """Retry events for the functions that missed them."""
    client = api(host, key, project)
    done = client.post(f"{PATH}retry/", {**_wanted(client, function, since, until), "dry_run": dry_run})
    queued = "would be queued" if dry_run else "queued"
    text = f"{done['tried_count']} tried, {done['queued_count']} runs {queued}, {done['failed_count']} failed again"
    if done["skipped_count"]:
        text += f", {done['skipped_count']} stay because their function does not run"
    echo(text)


@dead_letters_app.command()
def discard(
    function: FunctionOption = None,
    since: FromOption = None,
    until: ToOption = None,
    sure: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    host: HostOption = None,
    key: KeyOption = None,
    project: ProjectOption = 1,
) -> None:
    """Discard events: they will not be delivered."""
    client = api(host, key, project)
    wanted = _wanted(client, function, since, until)
    number = client.get(PATH, **wanted, limit=1)["count"]
    if number and not sure:
        typer.confirm(f"Forget {number} events for good?", abort=True)
    echo(f"{client.post(f'{PATH}discard/', wanted)['discarded_count']} forgotten")


def _wanted(client: Any, function: str | None, since: str | None, until: str | None) -> dict[str, Any]:
    function_id = None if function is None else function_path(client, function).rpartition("/")[2]
    return {"function_id": function_id, "after": since, "before": until}
