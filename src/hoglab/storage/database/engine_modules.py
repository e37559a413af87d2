"""Modules for what engines say differently: for each engine a package, with the same modules and functions."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    from sqlalchemy import Connection

_PACKAGES = {"sqlite": "sqlite", "postgresql": "postgres"}


def engine_module(connection: Connection, name: str) -> ModuleType:
    """Return the module of that name of the engine of a connection."""
    return import_module(f"{__package__}.{_PACKAGES[connection.dialect.name]}.{name}")
