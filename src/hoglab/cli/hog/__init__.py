"""``hoglab hog``: the language alone. One module for each command."""

from __future__ import annotations

import typer

from hoglab.cli.hog.check import check
from hoglab.cli.hog.compile import compile_to
from hoglab.cli.hog.docs import docs
from hoglab.cli.hog.explain import explain
from hoglab.cli.hog.format import format_files
from hoglab.cli.hog.repl import repl
from hoglab.cli.hog.run import run

hog_app = typer.Typer(help="Run, check and format programs in the Hog language.", no_args_is_help=True)
hog_app.command()(run)
hog_app.command()(check)
hog_app.command("compile")(compile_to)
hog_app.command("format")(format_files)
hog_app.command()(explain)
hog_app.command()(docs)
hog_app.command()(repl)
