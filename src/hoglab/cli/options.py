"""Options that several commands share, and how they become settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hoglab.cli.errors import OperatorError

if TYPE_CHECKING:
    from hoglab.cli.api_client import ApiClient
    from hoglab.settings import Settings

DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="Directory that holds everything (default: $HOGLAB_DATA or ./hoglab-data).",
        show_default=False,
    ),
]
DatabaseOption = Annotated[
    str | None,
    typer.Option(
        "--database-url",
        metavar="URL",
        help="PostgreSQL database for everything but events (default: $HOGLAB_DATABASE_URL, or the directory).",
        show_default=False,
    ),
]
URL_VARIABLE = "HOGLAB_URL"
"""Variable with the address of the server that commands talk to where `--host` does not say it."""

KEY_VARIABLE = "HOGLAB_API_KEY"
"""Variable with the key that commands send where `--key` does not say it."""


def host_option(description: str) -> Any:
    """Return the option `--host` of commands that talk to a server."""
    return typer.Option("--host", envvar=URL_VARIABLE, metavar="URL", help=description, show_default=False)


HostOption = Annotated[str | None, host_option("The server (default: as `serve` here).")]
KeyOption = Annotated[
    str | None,
    typer.Option(
        "--key",
        envvar=KEY_VARIABLE,
        help="Personal API key (phx_…) with the scopes that the command needs.",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ProjectOption = Annotated[int, typer.Option("--project", help="Id of the project.")]


def api(host: str | None, key: str | None, project: int) -> ApiClient:
    """Return the server to talk to. Raises `OperatorError`."""
    from hoglab.cli.api_client import ApiClient

    if not key:
        raise OperatorError(f"give --key or set {KEY_VARIABLE} (`hoglab keys create` makes a key)")
    return ApiClient(host or load_settings().public_url, key, project)


def existing_settings(data: Path | None) -> Settings:
    """Return settings of a command that needs an existing data directory: only `serve` and `demo` make one.

    Raises `OperatorError`, which says where it looked and what to do.
    """
    settings = load_settings(data=data)
    if settings.database_url is None and not (settings.data / "hoglab.db").exists():
        raise OperatorError(
            f"there is no hoglab data in {settings.data.absolute()} (no file hoglab.db): name the directory with "
            "--data or HOGLAB_DATA; `hoglab serve` makes a new one"
        )
    return settings


def metadata_place(settings: Settings) -> str | Path:
    """Return the place of all data but events: the address of a database, or a file of the directory.

    Beside a database there need not be a directory, as on another machine than the server's. Raises `DirectoryError`.
    """
    from hoglab.storage.directory import DataDirectory

    return settings.database_address or DataDirectory.open(settings.data, exclusive=False).metadata_path


def load_settings(**overrides: Any) -> Settings:
    """Return settings from the environment with the command's options on top. Raises `OperatorError`."""
    from hoglab import settings

    try:
        return settings.load(**overrides)
    except settings.SettingsError as error:
        raise OperatorError(str(error)) from error
