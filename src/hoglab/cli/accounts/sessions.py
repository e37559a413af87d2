"""``hoglab login`` and ``hoglab sessions``: logging in with a browser, and open sessions."""

from __future__ import annotations

import webbrowser
from typing import Annotated

import typer

from hoglab.cli.accounts.opening import opened_database
from hoglab.cli.errors import OperatorError
from hoglab.cli.options import DataOption, existing_settings
from hoglab.terminal import echo

sessions_app = typer.Typer(help="Sessions of browsers.", no_args_is_help=True)


def login(
    user: Annotated[
        str | None,
        typer.Option(
            "--user", metavar="EMAIL", help="User who logs in (default: the owner).", show_default=False
        ),
    ] = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the link in a browser here.")] = False,
    data: DataOption = None,
) -> None:
    """Print a link that logs a browser in, once. A server may be running."""
    from hoglab.accounts.sessions.service import SessionService, login_address, login_line
    from hoglab.storage.directory import served_at

    settings = existing_settings(data)
    if not settings.ui:
        raise OperatorError("the web UI is off (HOGLAB_UI=false), so there is nothing to log in to")
    with opened_database(data) as (database, accounts):
        user_id = accounts.owner_id() if user is None else accounts.user_id(user)
        token = SessionService(database, accounts).new_link(user_id)
    url = served_at(settings.data)
    if url is None:
        echo(f"no server is running on {settings.data}: start it with `hoglab serve`, then", err=True)
    site = url or settings.public_url
    echo(login_line(site, token))
    if open_browser and not webbrowser.open(login_address(site, token)):
        raise OperatorError("no browser could be started here: open the link yourself")


@sessions_app.command("list")
def list_sessions(data: DataOption = None) -> None:
    """List open sessions, the one seen last first."""
    from hoglab.accounts.sessions.service import SessionService

    with opened_database(data) as (database, accounts):
        sessions = SessionService(database, accounts).sessions()
        users = accounts.users([row["user_id"] for row in sessions])
    for row in sessions:
        facts = (
            f"from {row['ip']}",
            row["user_agent"] or "an unnamed browser",
            f"opened {row['created_at']:%Y-%m-%d %H:%M}",
            f"last seen {row['last_seen_at']:%Y-%m-%d %H:%M}",
            "by a link" if row["key_id"] is None else f"by key {row['key_id']}",
        )
        echo(f"{row['id']}  {users[row['user_id']].email}\n  {'; '.join(facts)}")


@sessions_app.command()
def revoke(
    session_id: Annotated[
        str, typer.Argument(help="The id of the session, as `hoglab sessions list` shows it.")
    ],
    data: DataOption = None,
) -> None:
    """End a session at once."""
    from hoglab.accounts.sessions.service import SessionService

    with opened_database(data) as (database, accounts):
        if not SessionService(database, accounts).end(session_id):
            raise OperatorError(f"there is no session {session_id}: `hoglab sessions list` shows the ids")
    echo(f"ended {session_id}")
