"""Results: the stored outcome of each invocation (spec: hog-runtime 4.10)."""

from __future__ import annotations

import threading
import zlib
from datetime import datetime
from typing import Any

import orjson

from hoglab.delivery.runs.state import mapping_named
from hoglab.patterns import searched
from hoglab.storage.database.types import to_micros

NOT_IN_RESULTS = frozenset({"inputs", "person", "groups"})
"""Parts of the globals that are looked up again when an invocation is run again."""

INPUTS_FAILED = "inputs_failed"
POISON_PILL = "poison_pill"
QUEUE_FULL = "queue_full"
"""Error of a run when too many runs of the function wait already."""

_STATUS = searched(r"(?:status|http)[^0-9]{0,40}([45])[0-9]{2}(?![0-9])")


class Versions:
    """Versions of results: microseconds that only ever rise, even if the clock is set back."""

    def __init__(self, last: int = 0) -> None:
        """Create the source of versions; ``last`` is the highest that was given before."""
        self._last = last
        self._lock = threading.Lock()

    def next(self, now: datetime) -> int:
        with self._lock:
            self._last = max(self._last + 1, to_micros(now))
            return self._last


def error_kind(message: str) -> str:
    """Return the kind of error that a message stands for."""
    lower = message.lower()
    if "timeout" in lower or "timed out" in lower:
        return "timeout"
    status = _STATUS.search(lower)
    if "server error" in lower or (status is not None and status[1] == "5"):
        return "http_5xx"
    if status is not None:
        return "http_4xx"
    if "out of memory" in lower or "memory limit" in lower:
        return "oom"
    return "hog_error"


def kept_globals(globals_: bytes, mapping_id: str | None) -> bytes:
    """Return the globals that a result keeps to be run again, compressed.

    They lack the parts that are looked up again, and have the mapping.
    """
    parts = orjson.loads(memoryview(globals_))
    kept = {name: part for name, part in parts.items() if name not in NOT_IN_RESULTS}
    return zlib.compress(orjson.dumps({"globals": kept, "mapping_id": mapping_id}), 1)


def restored_globals(kept: bytes) -> tuple[dict[str, Any], str | None]:
    """Return the globals from the result of `kept_globals`."""
    restored = orjson.loads(zlib.decompress(kept))
    return restored["globals"], mapping_named(restored.get("mapping_id"), restored.get("mapping"))
