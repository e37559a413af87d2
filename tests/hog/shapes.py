"""Values that are large or deep out of a few objects."""

from __future__ import annotations

from typing import Any


def nested(levels: int) -> Any:
    """Lists in lists; the innermost is empty."""
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


def bomb(levels: int) -> Any:
    """Few objects that stand for 2^levels parts."""
    value: Any = []
    for _ in range(levels):
        value = [value, value]
    return value
