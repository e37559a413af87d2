"""``hoglab demo``."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer

from hoglab.cli.errors import OperatorError
from hoglab.terminal import plain_console


def demo(
    users: Annotated[int, typer.Option("--users", min=100, help="Number of users to simulate.")] = 20_000,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Port of the demo's server.")] = 8000,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="DIR",
            help="A new directory to keep the demo's data in (default: a temporary one).",
            show_default=False,
            envvar="HOGLAB_DATA",
        ),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            help="A running server on this machine to show it on, in its project 1, instead of starting one; with "
            "HOGLAB_API_KEY. Its functions have to reach 127.0.0.1.",
            show_default=False,
        ),
    ] = None,
    key: Annotated[
        str, typer.Option("--key", envvar="HOGLAB_API_KEY", help="Personal API key (phx_…) for --url.")
    ] = "",
    leave: Annotated[
        bool,
        typer.Option(
            "--exit",
            help="Stop after the results; the status is 0 only if all users, purchases and deliveries are there.",
        ),
    ] = False,
) -> None:
    """Show the main job on simulated users: flags, events, results, deliveries.

    Starts a server, creates an experiment and a hog function over the API, sends simulated users through the
    PostHog Python SDK, and compares what the server reports with the truth of the simulation. Then it goes on
    serving, until Ctrl-C.
    """

    try:
        from hoglab.demo import DemoError, DemoOptions, run_demo
    except ModuleNotFoundError as error:
        raise OperatorError(
            f"the demo needs the package {error.name}: install hoglab with its extra, hoglab[demo]"
        ) from error

    options = DemoOptions(users=users, port=port, data=data, exit=leave, url=url, api_key=key)
    # Each must stop the server too, also where the shell lets background jobs ignore SIGINT. A terminal that is closed
    # sends SIGHUP.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        is_complete = run_demo(options, plain_console(markup=True, highlight=True))
    except DemoError as error:
        raise OperatorError(str(error)) from error
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    if (leave or url is not None) and not is_complete:
        raise typer.Exit(1)
