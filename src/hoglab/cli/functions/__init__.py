"""``hoglab functions``: the state of a running server's functions, and running them again."""

from __future__ import annotations

import json
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hoglab.cli.api_client import RequestRefusedError
from hoglab.cli.errors import OperatorError
from hoglab.cli.functions.dead_letters import dead_letters_app
from hoglab.cli.functions.options import (
    DryRunOption,
    FromOption,
    FunctionArgument,
    ToOption,
    function_path,
)
from hoglab.cli.options import HostOption, JsonOption, KeyOption, ProjectOption, api
from hoglab.terminal import echo, plain_console

if TYPE_CHECKING:
    from hoglab.cli.api_client import ApiClient

POLL_S = 0.3
FAILED = 1
"""Exit status of a backfill that failed or was cancelled."""

HEALTHY = 1
STATES = {
    0: "-",
    1: "healthy",
    2: "slowed down",
    3: "stopped",
    11: "slowed down by hand",
    12: "stopped by hand",
}

NOTHING: dict[str, Any] = {
    "succeeded": 0,
    "failed": 0,
    "unfinished": 0,
    "destination_away": False,
    "last_error": None,
}
"""Figures of a function without recent activity."""

functions_app = typer.Typer(help="Event functions of a running server.", no_args_is_help=True)
functions_app.add_typer(dead_letters_app, name="dead-letters")


@functions_app.command("list")
def list_functions(
    as_json: JsonOption = False, host: HostOption = None, key: KeyOption = None, project: ProjectOption = 1
) -> None:
    """List the functions of a project and their results in the last 24 hours."""

    from hoglab.reports.tables import light_table, whole

    client = api(host, key, project)
    functions = list(client.pages("/hog_functions/"))
    health = {row["id"]: row for row in client.get("/hog_functions/health/")}
    if as_json:
        echo(json.dumps([{**function, "health": health.get(function["id"])} for function in functions]))
        return
    table = light_table(None, whole("Id"), "Name", "Type", "State", "Ok", "Failed")
    errors = []
    for function in functions:
        lately = health.get(function["id"], NOTHING)
        numbers = str(lately["succeeded"]), str(lately["failed"])
        table.add_row(function["id"], function["name"], function["type"], _state(function, lately), *numbers)
        if (error := _last_error(lately)) is not None:
            errors.append(f"{function['name']}, last error at {error}")
    plain_console().print(table)
    for text in errors:  # below the table, where there is room for sentences
        echo(text)


def _state(function: dict[str, Any], lately: dict[str, Any]) -> str:
    """Return the state of a function in a word or two: one that is not slow may still fail."""
    state = function["status"]["state"]
    if not function["enabled"]:
        return "off"
    if state != HEALTHY:
        return STATES.get(state, str(state))
    if lately["destination_away"]:
        return "destination away"
    if lately["failed"]:
        return "fails at times" if lately["succeeded"] else "failing"
    return "retrying" if lately["last_error"] and lately["unfinished"] else STATES[HEALTHY]


def _last_error(lately: dict[str, Any]) -> str | None:
    error = lately["last_error"]
    return None if error is None else f"{error['timestamp'][:16].replace('T', ' ')}: {error['message']}"


@functions_app.command()
def logs(
    function: FunctionArgument,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with new lines as they come.")
    ] = False,
    level: Annotated[
        str | None, typer.Option("--level", help="Only these levels, joined by commas.", show_default=False)
    ] = None,
    search: Annotated[
        str | None, typer.Option("--search", help="Only lines with this text.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option("--limit", help="Maximum number of lines before following.")] = 50,
    host: HostOption = None,
    key: KeyOption = None,
    project: ProjectOption = 1,
) -> None:
    """Print the log of a function, oldest line first."""
    client = api(host, key, project)
    path = function_path(client, function)
    # What is followed is opened first, so that no line falls between the two.
    following = client.events(f"{path}/logs/tail/", level=level, search=search) if follow else iter(())
    known: set[tuple[str, str, str]] = set()
    for line in reversed(client.get(f"{path}/logs/", limit=limit, level=level, search=search)["results"]):
        known.add((line["instance_id"], line["timestamp"], line["message"]))
        _print_line(line)
    try:
        for name, data in following:
            if name == "skipped":
                echo(f"… {data['count']} lines left out", err=True)
            elif (data["instance_id"], data["timestamp"], data["message"]) not in known:
                _print_line(data)
    except KeyboardInterrupt:
        return


def _print_line(line: dict[str, Any]) -> None:
    echo(f"{line['timestamp']} {line['level']:<5} {line['instance_id']} {line['message']}")


@functions_app.command()
def backfill(
    function: FunctionArgument,
    since: Annotated[str, typer.Option("--from", metavar="TIME", help="The first moment (UTC).")],
    until: ToOption = None,
    limit: Annotated[
        int | None, typer.Option("--limit", help="Maximum number of events.", show_default=False)
    ] = None,
    dry_run: DryRunOption = False,
    detach: Annotated[bool, typer.Option("--detach", help="Do not wait for the end.")] = False,
    host: HostOption = None,
    key: KeyOption = None,
    project: ProjectOption = 1,
) -> None:
    """Run a function on stored events. What was delivered in the last 30 days is not delivered again.

    The server does it; interrupting this command does not stop it.
    """
    client = api(host, key, project)
    path = function_path(client, function)
    body = {"from": since, "to": until, "limit": limit, "dry_run": dry_run}
    job = client.post(f"{path}/backfill/", body)
    if not detach:
        job = _watched(client, f"{path}/backfills", job, "events", function)
    _tell(job, _told(job))


def _tell(job: dict[str, Any], text: str) -> None:
    """Print the result of background work; the status of the command says it too."""
    echo(text)
    if job["status"] in ("failed", "cancelled"):
        raise typer.Exit(FAILED)


def _watched(client: ApiClient, path: str, job: dict[str, Any], what: str, function: str) -> dict[str, Any]:
    """Wait for the end of background work, with a bar. An interruption ends the command and nothing else."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = plain_console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=job["total"], completed=job["seen"])
        try:
            while job["status"] == "running":
                time.sleep(POLL_S)
                job = client.get(f"{path}/{job['id']}/")
                bar.update(task, completed=job["seen"])
        except KeyboardInterrupt:
            echo(f"it goes on: hoglab functions cancel {function} {job['id']} stops it", err=True)
            raise typer.Exit from None
    return job


def _told(job: dict[str, Any]) -> str:
    queued = "would be queued" if job["dry_run"] else "queued"
    text = (
        f"{job['id']} {job['status']}: {job['seen']} of {job['total']} events, {job['queued']} runs {queued}"
    )
    if job["already_run"]:
        text += f", {job['already_run']} left out, for they were run before"
    if job["dead_letters"]:
        text += f", {job['dead_letters']} dead letters"
    return text if job["error"] is None else f"{text} ({job['error']})"


@functions_app.command()
def backfills(
    function: FunctionArgument, host: HostOption = None, key: KeyOption = None, project: ProjectOption = 1
) -> None:
    """List the backfills of a function, newest first."""
    client = api(host, key, project)
    for job in client.pages(f"{function_path(client, function)}/backfills/"):
        echo(_told(job))


@functions_app.command()
def cancel(
    function: FunctionArgument,
    job_id: Annotated[str, typer.Argument(metavar="ID", help="Id of the backfill or the replay.")],
    host: HostOption = None,
    key: KeyOption = None,
    project: ProjectOption = 1,
) -> None:
    """Stop a backfill or a replay. What it has put into the queue still runs."""
    client = api(host, key, project)
    path = function_path(client, function)
    try:
        line = _told(client.post(f"{path}/backfills/{job_id}/cancel/", {}))
    except RequestRefusedError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        line = _told_rerun(client.post(f"{path}/reruns/{job_id}/cancel/", {}))
    echo(line)


@functions_app.command()
def replay(
    function: FunctionArgument,
    since: FromOption = None,
    until: ToOption = None,
    status: Annotated[list[str], typer.Option("--status", help="Runs that ended so.")] = ["failed"],  # noqa: B006
    error_kind: Annotated[
        list[str] | None,
        typer.Option("--error-kind", help="Runs that failed in this way.", show_default=False),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", help="Maximum number of runs, the oldest first.", show_default=False),
    ] = None,
    dry_run: DryRunOption = False,
    detach: Annotated[bool, typer.Option("--detach", help="Do not wait for the end.")] = False,
    host: HostOption = None,
    key: KeyOption = None,
    project: ProjectOption = 1,
) -> None:
    """Run past runs of a function again, with its present configuration; by default those that failed.

    The server does it; interrupting this command does not stop it.
    """
    if limit is not None and limit < 1:
        raise OperatorError("--limit must be at least 1")
    client = api(host, key, project)
    wanted = {
        "window_start": since,
        "window_end": until,
        "status": status,
        "error_kind": error_kind or None,
        "max_count": limit,
    }
    selection = {name: value for name, value in wanted.items() if value is not None}
    path = function_path(client, function)
    done = client.post(f"{path}/rerun/", {"filter": selection, "dry_run": dry_run})
    if dry_run:
        echo(f"{done['queued_count']} would run again, {done['skipped_count']} skipped")
        return
    job = client.get(f"{path}/reruns/{done['rerun_job_id']}/")
    if not detach:
        job = _watched(client, f"{path}/reruns", job, "runs", function)
    _tell(job, _told_rerun(job))


@functions_app.command()
def replays(
    function: FunctionArgument, host: HostOption = None, key: KeyOption = None, project: ProjectOption = 1
) -> None:
    """List the replays of a function, newest first."""
    client = api(host, key, project)
    for job in client.pages(f"{function_path(client, function)}/reruns/"):
        echo(_told_rerun(job))


def _told_rerun(job: dict[str, Any]) -> str:
    text = (
        f"{job['id']} {job['status']}: {job['seen']} of {job['total']} runs, "
        f"{job['queued']} run again, {job['skipped']} skipped"
    )
    return text if job["error"] is None else f"{text} ({job['error']})"
