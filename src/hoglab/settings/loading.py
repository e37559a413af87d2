"""Reading of all settings from the environment, with errors and warnings for the operator."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from hoglab import old_names
from hoglab.settings.server import PREFIX, Settings

OF_CLIENTS = {"HOGLAB_API_KEY": "personal API key (`phx_…`)", "HOGLAB_URL": "address of the server"}
"""Variables that are no settings of a server, with what they hold: commands that are clients of one read them."""
SECRET = frozenset(
    {
        "bootstrap_api_key",
        "bootstrap_project_token",
        "database_url",
        "event_log_url",
        "event_store_url",
        "metrics_token",
        "secret_keys",
        "smtp_url",
    }
)
"""Settings whose values are in no message."""


class SettingsError(Exception):
    """A setting has a value that cannot be used; the text is one line for the operator."""


def load(**overrides: Any) -> Settings:
    """Return settings from the environment, with the given values that are not None on top.

    A variable with an old name (`hoglab.old_names`) counts where the new one is not set. Raises `SettingsError` with
    one line that names the variable, its value, what is wrong with it, and an example.
    """
    environment = {name.upper(): value for name, value in os.environ.items()}
    renamed = {
        new.removeprefix(PREFIX).lower(): environment[old]
        for old, new in old_names.renamed_variables(environment).items()
    }
    given = {name: value for name, value in overrides.items() if value is not None}
    try:
        return Settings(**{**renamed, **given})
    except ValidationError as error:
        raise SettingsError(_explained(error.errors()[0])) from None  # its own text quotes what was given


def _explained(fault: Any) -> str:
    name = str(fault["loc"][0])
    rule = fault["msg"].removeprefix("Value error, ").removesuffix(".")
    value = "" if name in SECRET else f"{str(fault['input'])!r}: "
    field = Settings.model_fields.get(name)
    example = (
        ""
        if field is None or not field.examples
        else f" (example: {PREFIX}{name.upper()}={field.examples[0]})"
    )
    return f"{PREFIX}{name.upper()}: {value}{rule}{example}"


def unknown_variables(environment: Mapping[str, str]) -> dict[str, str | None]:
    """Return variables that look like settings and are none, each with the setting that is likely meant."""
    known = sorted(name.upper() for name in Settings.model_fields)
    unknown = sorted(
        name.removeprefix(PREFIX)
        for name in environment
        if name.startswith(PREFIX) and name not in OF_CLIENTS and name not in old_names.SETTINGS
    )
    likely = {name: difflib.get_close_matches(name, known, n=1) for name in unknown if name not in known}
    return {PREFIX + name: PREFIX + matches[0] if matches else None for name, matches in likely.items()}
