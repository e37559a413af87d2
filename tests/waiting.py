"""Waiting for what happens in another thread or process."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

PATIENCE_S = 240.0
"""How long tests wait for what must happen: ten times what it takes, for this only ends what hangs."""


def wait_for(condition: Callable[[], Any], timeout_s: float = PATIENCE_S, *, every_s: float = 0.005) -> Any:
    """Return what the condition gives once that is true, asking every ``every_s``. Fails after ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    while not (result := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(every_s)
    return result
