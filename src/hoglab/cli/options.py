"""Options that several commands share, and how they become settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hoglab.cli.errors import OperatorError

if TYPE_CHECKING:
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
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ProjectOption = Annotated[int, typer.Option("--project", help="Id of the project.")]


def load_settings(**overrides: Any) -> Settings:
    """Settings from the environment with the command's options on top. Raises `OperatorError`."""
    from hoglab import settings

    try:
        return settings.load(**overrides)
    except settings.SettingsError as error:
        raise OperatorError(str(error)) from error
