"""Secrets at rest (spec: hog-functions-api 10).

Secrets are kept apart from the other inputs, encrypted and authenticated. The keys live outside the database; the
newest one encrypts, all of them decrypt, so that a key can be replaced without rewriting old rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson
from cryptography.fernet import Fernet, InvalidToken, MultiFernet

if TYPE_CHECKING:
    from hoglab.storage.directory import DataDirectory

KEY_FILE = "secret-keys"
"""Name of the key file in the data directory: one key a line, newest first."""

MASK = "********"
"""Text that people see instead of a secret, and can never store as one."""


class SecretsError(Exception):
    """Secrets cannot be read or written; the text is one line for the operator."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """The secret items of a function: of its own inputs, and of each mapping's inputs by the mapping's label."""

    inputs: Mapping[str, Any] = field(default_factory=dict)
    mappings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.inputs) or any(self.mappings.values())


class SecretBox:
    """Encrypts and decrypts: the secrets of functions, and single texts."""

    def __init__(self, keys: Sequence[str]) -> None:
        """Create a box with Fernet keys, newest first. Raises `SecretsError` for an invalid key."""
        try:
            self._fernet = MultiFernet([Fernet(key) for key in keys])
        except ValueError as error:
            raise SecretsError(f"a secret key is not usable: {error}") from None

    @classmethod
    def open(cls, directory: DataDirectory, keys: Sequence[str] = ()) -> SecretBox:
        """Return a box with the given keys, else those of the data directory's key file, created when it is missing.

        Raises `SecretsError` when the file has no usable key.
        """
        if keys:
            return cls(keys)
        content = directory.secret(KEY_FILE, lambda: f"{cls.new_key()}\n".encode()).decode("ascii", "replace")
        file_keys = [
            line.strip() for line in content.splitlines() if line.strip() and not line.startswith("#")
        ]
        if not file_keys:
            raise SecretsError(f"{directory.path / KEY_FILE} holds no key")
        return cls(file_keys)

    @staticmethod
    def add_key(directory: DataDirectory) -> None:
        """Put a new key in front of those in the data directory's key file. Raises the errors of `open`."""
        SecretBox.open(directory)
        content = directory.secret(KEY_FILE, bytes)
        directory.replace_secret(KEY_FILE, f"{SecretBox.new_key()}\n".encode() + content)

    @staticmethod
    def new_key() -> str:
        """Return a random key."""
        return Fernet.generate_key().decode("ascii")

    def renewed(self, sealed: bytes) -> bytes:
        """Return sealed content encrypted with the newest key. Raises `SecretsError` as `unseal` does."""
        try:
            return self._fernet.rotate(sealed)
        except InvalidToken:
            raise SecretsError(_UNREADABLE) from None

    def renewed_text(self, sealed: str) -> str:
        """Return an encrypted text encrypted with the newest key. Raises `SecretsError` as `unseal` does."""
        return self.renewed(sealed.encode()).decode("ascii")

    def seal(self, secrets: Secrets) -> bytes | None:
        """Return the encrypted form; None when there are no secrets."""
        if not secrets:
            return None
        content = {
            "inputs": dict(secrets.inputs),
            "mappings": {k: dict(v) for k, v in secrets.mappings.items()},
        }
        return self._fernet.encrypt(orjson.dumps(content))

    def unseal(self, sealed: bytes | None) -> Secrets:
        """Return the content. Raises `SecretsError` when no key fits or the data was changed."""
        if not sealed:
            return Secrets()
        try:
            content = orjson.loads(self._fernet.decrypt(sealed))
        except InvalidToken:
            raise SecretsError(_UNREADABLE) from None
        return Secrets(content["inputs"], content["mappings"])

    def encrypt_text(self, text: str) -> str:
        """Return one encrypted text, as ASCII."""
        return self._fernet.encrypt(text.encode()).decode("ascii")

    def decrypt_text(self, sealed: str) -> str:
        """Return the text. Raises `SecretsError` as `unseal` does."""
        try:
            return self._fernet.decrypt(sealed).decode()
        except InvalidToken:
            raise SecretsError(_UNREADABLE) from None


_UNREADABLE = "stored secrets cannot be read with the present secret keys"
