"""The cipher that rooms below the owner of the secret keys need."""

from __future__ import annotations

from typing import Protocol


class Cipher(Protocol):
    """Encrypts texts with keys that are not in the database."""

    def encrypt_text(self, text: str) -> str:
        """Return the text, sealed, as ASCII."""
        ...

    def decrypt_text(self, sealed: str) -> str:
        """Return the text again. Raises an exception when no key fits."""
        ...
