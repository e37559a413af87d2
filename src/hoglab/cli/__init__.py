"""The ``hoglab`` command.

Each group of commands is a module of this room. They import what they run inside the functions, so that
``hoglab --help`` and shell completion stay quick.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Annotated

import typer

from hoglab import __version__
from hoglab.cli.accounts.keys import keys_app
from hoglab.cli.accounts.projects import projects_app
from hoglab.cli.accounts.sessions import login, sessions_app
from hoglab.cli.backup import backup, check, repair, restore
from hoglab.cli.demo import demo
from hoglab.cli.errors import OperatorError
from hoglab.cli.experiment.commands import experiment_app
from hoglab.cli.functions import functions_app
from hoglab.cli.hog import hog_app
from hoglab.cli.ingestion import ingestion_app
from hoglab.cli.moving import migrate_to
from hoglab.cli.openapi import openapi
from hoglab.cli.query import query
from hoglab.cli.secrets import secrets_app
from hoglab.cli.serve import migrate, serve
from hoglab.cli.transfer import export_app, import_app
from hoglab.cli.warehouse import warehouse_app
from hoglab.terminal import echo

app = typer.Typer(
    name="hoglab",
    help="Experiments and event functions behind PostHog's API, in one process on one directory.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(serve)
app.command()(migrate)
app.command("migrate-to")(migrate_to)
app.command()(demo)
app.command()(login)
app.command()(openapi)
app.command()(query)
app.command()(backup)
app.command()(restore)
app.command()(check)
app.command()(repair)
app.add_typer(experiment_app, name="experiment")
app.add_typer(keys_app, name="keys")
app.add_typer(projects_app, name="projects")
app.add_typer(sessions_app, name="sessions")
app.add_typer(functions_app, name="functions")
app.add_typer(hog_app, name="hog")
app.add_typer(ingestion_app, name="ingestion")
app.add_typer(secrets_app, name="secrets")
app.add_typer(warehouse_app, name="warehouse")
app.add_typer(import_app, name="import")
app.add_typer(export_app, name="export")


def _show_version(wanted: bool) -> None:
    if wanted:
        echo(f"hoglab {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line. An error that an operator can correct is one line on stderr, never a traceback."""
    _open_standard_streams()
    try:
        app()
    except OperatorError as error:
        echo(f"hoglab: {error}", err=True)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(1)  # a partly opened engine prints errors when the interpreter is taken down


def _open_standard_streams() -> None:
    """Point a closed standard stream to nowhere.

    Otherwise the next file or socket takes its number, which libuv treats as an error, and output for that stream
    would be written into it.
    """
    for number, (name, mode) in enumerate([("stdin", "r"), ("stdout", "w"), ("stderr", "w")]):
        if getattr(sys, name) is None:
            taken = os.open(os.devnull, os.O_RDWR)  # the lowest that is free
            os.set_inheritable(taken, number == taken)
            setattr(sys, name, os.fdopen(taken, mode))
