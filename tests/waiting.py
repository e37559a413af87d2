"""Waiting for what happens in another thread or process."""

from __future__ import annotations

import time
from collections.abc import Callable
from inspect import signature
from typing import Any

import httpx

PATIENCE_S = 240.0
"""How long tests wait for what must happen: ten times what it takes, for this only ends what hangs."""


def be_patient_with_servers() -> None:
    """Let requests that name no timeout wait for `PATIENCE_S`; httpx would give up after 5 seconds.

    All clients of a process share the default that is changed here.
    """
    default = signature(httpx.Client).parameters["timeout"].default
    for wait in ("connect", "read", "write", "pool"):
        setattr(default, wait, PATIENCE_S)


def wait_for(condition: Callable[[], Any], timeout_s: float = PATIENCE_S, *, every_s: float = 0.005) -> Any:
    """Return what the condition gives once that is true, asking every ``every_s``. Fails after ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    while not (result := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(every_s)
    return result
