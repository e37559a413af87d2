"""Personal API keys and project tokens as texts: making, hashing, masking, checking their form."""

from __future__ import annotations

import hashlib
import secrets
import string

from hoglab.http.management.access import TOKEN_PREFIX
from hoglab.patterns import anchored

KEY_PREFIX = "phx_"
SECRET_PREFIX = "phs_"  # noqa: S105 - how project secret keys begin
RANDOM_CHARACTERS = 48
"""Length of the random part of generated keys: 48 characters out of 62 carry 285 bits."""

_BASE62 = string.digits + string.ascii_letters
_KEY = anchored(r"phx_[A-Za-z0-9_-]{32,200}")
_TOKEN = anchored(r"phc_[A-Za-z0-9_-]{10,60}")
_HASH_PREFIX = "sha256$"


def new_key() -> str:
    """Return a personal API key."""
    return KEY_PREFIX + _random()


def new_secret_key() -> str:
    """Return a project secret key, with which SDKs that evaluate flags on their own authenticate."""
    return SECRET_PREFIX + _random()


def new_token() -> str:
    """Return a project token. It is public: it says where events belong and gives no access."""
    return TOKEN_PREFIX + _random()


def new_distinct_id() -> str:
    """Return a new distinct id by which a user of this server is known as a person."""
    return _random()


def _random() -> str:
    return "".join(secrets.choice(_BASE62) for _ in range(RANDOM_CHARACTERS))


def hash_key(key: str) -> str:
    """Return the hash of a key to store. Keys are random, so one plain SHA-256 cannot be guessed back."""
    return _HASH_PREFIX + hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def mask_key(key: str) -> str:
    """Return the masked form of a key for people: ``phx_...abcd``."""
    prefix = SECRET_PREFIX if key.startswith(SECRET_PREFIX) else KEY_PREFIX
    return f"{prefix}...{key[-4:]}"


def is_key(text: str) -> bool:
    """Return whether a text may serve as a personal API key: ``phx_`` and at least 32 further characters."""
    return _KEY.fullmatch(text) is not None


def is_token(text: str) -> bool:
    """Return whether a text may serve as a project token."""
    return _TOKEN.fullmatch(text) is not None
