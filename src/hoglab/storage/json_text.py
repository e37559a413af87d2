"""JSON text that is kept for a while."""

from __future__ import annotations

from typing import Any

import orjson


def json_bytes(value: Any) -> bytes:
    """Return the JSON text of a value, in no more memory than it needs. Raises `TypeError` like the encoder.

    The encoder hands out the buffer that it wrote to, cut to size in place. A caller that keeps thousands of them
    at once occupies fresh pages for each, and touching those takes several times as long as encoding.
    """
    return bytes(memoryview(orjson.dumps(value)))
