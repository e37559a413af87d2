"""Encrypted payloads of remote-configuration flags (spec: sdk-wire 2.5, 3.4).

An encrypted payload is kept as the JSON text ``{"$sealed": "…"}``. Matching and the API never open it: they show
`REDACTED_PAYLOAD` instead. Only the remote-configuration endpoint does. Whether a payload is encrypted says the flag,
for anybody may write such a text into a payload that is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import orjson

from hoglab.http.errors import conflict

if TYPE_CHECKING:
    from hoglab.http.management.cipher import Cipher

REDACTED_PAYLOAD = '"********* (encrypted)"'
"""Text shown in place of an encrypted payload (JSON text)."""

_SEALED = "$sealed"


def protect(
    filters: dict[str, Any],
    cipher: Cipher | None,
    *,
    encrypted: bool,
    stored: Mapping[str, Any] | None = None,
    was_encrypted: bool = False,
) -> dict[str, Any]:
    """Return the filters with payloads sealed, or opened again, as the flag asks.

    ``stored`` are the filters that the flag has now; payloads taken over from them are sealed already when
    the flag ``was_encrypted``. Without a cipher payloads are kept as they are.
    """
    payloads = filters.get("payloads")
    if not payloads or cipher is None or not (encrypted or was_encrypted):
        return filters
    before = (stored or {}).get("payloads") or {}
    kept = {key for key, text in payloads.items() if was_encrypted and before.get(key) == text}
    changed = {}
    for key, text in payloads.items():
        if encrypted:
            changed[key] = text if key in kept else _seal(text, cipher)
        else:
            changed[key] = reveal(text, cipher) if key in kept else text
    return {**filters, "payloads": changed}


def reveal(text: str, cipher: Cipher | None) -> str:
    """Return the JSON text of a payload of a flag with encrypted ones. Raises 409 when it cannot be decrypted."""
    value = orjson.loads(text)
    if cipher is None or not isinstance(value, dict) or set(value) != {_SEALED}:
        return text
    try:
        return cipher.decrypt_text(value[_SEALED])
    except Exception:
        raise conflict("The payload cannot be decrypted with the present secret keys.") from None


def resealed(filters: Mapping[str, Any], renew: Callable[[str], str]) -> dict[str, Any] | None:
    """Return the filters of a flag with encrypted payloads, sealed with the newest key; None when none is sealed."""
    payloads = filters.get("payloads") or {}
    changed = {}
    for key, text in payloads.items():
        value = orjson.loads(text) if isinstance(text, str) and _SEALED in text else None
        if isinstance(value, dict) and set(value) == {_SEALED}:
            changed[key] = orjson.dumps({_SEALED: renew(value[_SEALED])}).decode()
    return {**filters, "payloads": {**payloads, **changed}} if changed else None


def _seal(text: str, cipher: Cipher) -> str:
    return orjson.dumps({_SEALED: cipher.encrypt_text(text)}).decode()
