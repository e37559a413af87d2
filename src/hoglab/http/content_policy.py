"""Content Security Policies: what a browser may do with an answer that it shows (CSP, level 3).

Whatever this server sends is a neighbour of its pages, for which a cookie counts. So each answer that is no JSON has a
policy: its own, or `CLOSED`, by which it is shown and can do nothing.
"""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

HEADER = "Content-Security-Policy"
CLOSED = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox"

_NAME = HEADER.lower().encode()
_JSON_TYPES = (b"application/json", b"+json")
_CLOSED_HEADER = (_NAME, CLOSED.encode())


def page_policy(style: str | None = None, **sources: str) -> str:
    """Return the policy of a page that loads nothing but what it names.

    ``style``: the text of its only ``<style>``. ``sources`` are directives with underscores for their dashes.
    """
    if style is not None:
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        sources["style_src"] = f"'sha256-{digest}'"
    closed = {"base_uri": "'none'", "form_action": "'none'", "frame_ancestors": "'none'"}
    named = {"default_src": "'none'", **sources, **closed}
    return "; ".join(f"{name.replace('_', '-')} {value}" for name, value in named.items())


def missing_policy(headers: Iterable[tuple[bytes, bytes]]) -> tuple[tuple[bytes, bytes], ...]:
    """Return the header that an answer lacks: none where it is JSON, has no content, or has a policy of its own."""
    is_shown = False
    for name, value in headers:
        lowered = name.lower()
        if lowered == _NAME:
            return ()
        if lowered == b"content-type":
            is_shown = not value.partition(b";")[0].strip().lower().endswith(_JSON_TYPES)
    return (_CLOSED_HEADER,) if is_shown else ()
