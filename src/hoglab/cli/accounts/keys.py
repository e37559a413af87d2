"""``hoglab keys``: personal API keys."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from hoglab.cli.accounts.opening import opened_accounts
from hoglab.cli.errors import OperatorError
from hoglab.cli.options import DataOption
from hoglab.terminal import echo

keys_app = typer.Typer(help="Personal API keys.", no_args_is_help=True)


@keys_app.command()
def create(
    label: Annotated[str, typer.Option("--label", help="Label that says what the key is for.")],
    scopes: Annotated[
        str,
        typer.Option("--scopes", help='Comma-separated, "experiment:read,hog_function:write"; "*" for all.'),
    ] = "*",
    project: Annotated[
        list[int] | None,
        typer.Option("--project", help="Limit the key to this project; may be repeated.", show_default=False),
    ] = None,
    expires_in_days: Annotated[
        int | None,
        typer.Option(
            "--expires-in-days", min=1, max=36_500, help="Days until it expires.", show_default=False
        ),
    ] = None,
    data: DataOption = None,
) -> None:
    """Make a key and print it. It is shown only this once."""
    wanted = [scope.strip() for scope in scopes.split(",") if scope.strip()]
    expires_at = None if expires_in_days is None else datetime.now(UTC) + timedelta(days=expires_in_days)
    with opened_accounts(data) as accounts:
        for project_id in project or ():
            if accounts.project(project_id) is None:
                raise OperatorError(f"there is no project {project_id}")
        key = accounts.create_key(
            accounts.owner_id(), label, wanted, scoped_projects=project or None, expires_at=expires_at
        )
    echo(key.value)


@keys_app.command("list")
def list_keys(data: DataOption = None) -> None:
    """List the keys, newest first. Their values are not kept and cannot be shown."""
    with opened_accounts(data) as accounts:
        keys = accounts.keys()
    for key in keys:
        projects = key["scoped_projects"]
        facts = (
            key["mask_value"],
            f"scopes {', '.join(key['scopes'])}",
            "all projects" if projects is None else f"projects {', '.join(map(str, projects))}",
            f"created {_day(key['created_at'])}",
            f"last used {_day(key['last_used_at'])}" if key["last_used_at"] else "never used",
            f"expires {_day(key['expires_at'])}" if key["expires_at"] else "does not expire",
        )
        echo(f"{key['id']}  {key['label']}\n  {'; '.join(facts)}")


@keys_app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(help="The id of the key, as `hoglab keys list` shows it.")],
    data: DataOption = None,
) -> None:
    """Revoke a key, at once and for good."""
    with opened_accounts(data) as accounts:
        if not accounts.revoke_key(key_id):
            raise OperatorError(f"there is no key {key_id}: `hoglab keys list` shows the ids")
    echo(f"revoked {key_id}")


def _day(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d}"
