"""Kinds of values that several settings have."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator
from pydantic_settings import NoDecode

MIB = 1024 * 1024


def _split_on_commas(value: Any) -> Any:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


CommaSeparated = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split_on_commas)]
"""Texts between commas, without the space around them."""
