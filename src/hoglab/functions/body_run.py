"""Result of a transformation's program on one event."""

from __future__ import annotations

import msgspec


class BodyRun(msgspec.Struct, array_like=True):
    """Result of a transformation's program on one event.

    ``value`` is what the program returned, as JSON; None when it is falsy, or when there was an ``error``.
    ``lines`` were printed; ``used_s`` is its computing time in seconds. ``given_up`` means that it was not run,
    because the function had been too slow on other events of the same batch. ``returned`` is false when the program
    came to its end, or to a ``return``, without a value.
    """

    value: bytes | None = None
    error: str | None = None
    lines: list[str] = []
    used_s: float = 0.0
    given_up: bool = False
    returned: bool = True
