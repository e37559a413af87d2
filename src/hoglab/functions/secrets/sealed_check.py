"""Check that the secret keys are those that sealed the stored secrets: a known text, sealed by the first start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from hoglab.functions.secrets.box import SecretsError
from hoglab.storage.database.tables import hog_function, installation

if TYPE_CHECKING:
    from hoglab.functions.secrets.box import SecretBox
    from hoglab.storage.database import Database, Transaction
    from hoglab.storage.directory import DataDirectory

TEXT = "hoglab"


def check_secrets(database: Database, box: SecretBox, directory: DataDirectory, *, accept_loss: bool) -> None:
    """Refuse to start with keys that do not open the stored secrets.

    With ``accept_loss`` the start continues: functions with secrets do not run until these are entered again.
    Raises `SecretsError`.
    """
    if unreadable(database, box) and not accept_loss:
        raise SecretsError(
            f"the secret keys are not those that encrypted the secrets of functions and flags: put {directory.path}/"
            "secret-keys back (or HOGLAB_SECRET_KEYS), or restore a backup; `hoglab serve --accept-loss` goes on "
            "without these secrets, which then have to be entered again"
        )


def is_prepared(database: Database) -> bool:
    """Return whether the database has a text to check the keys with: the core of the server has started once."""
    with database.read() as connection:
        return connection.scalar(sa.select(installation.c.sealed_check)) is not None


def check_shared_secrets(database: Database, box: SecretBox) -> None:
    """Refuse to start beside other processes that have other keys. Raises `SecretsError`."""
    if unreadable(database, box):
        raise SecretsError(
            "HOGLAB_SECRET_KEYS are not the keys that encrypted the secrets of functions and flags in this database: "
            "give all processes those of the core"
        )


def unreadable(database: Database, box: SecretBox) -> bool:
    """Return whether the stored secrets cannot be opened."""
    with database.read() as connection:
        sealed = connection.scalar(sa.select(installation.c.sealed_check))
        if sealed is None:  # of an older version: any secret of a function will do
            known = sa.select(hog_function.c.encrypted_inputs).where(
                hog_function.c.encrypted_inputs.is_not(None), hog_function.c.deleted.is_(False)
            )
            secret = connection.scalar(known.limit(1))
    try:
        if sealed is not None:
            return box.decrypt_text(sealed) != TEXT
        box.unseal(secret)
    except SecretsError:
        return True
    return False


def unreadable_secrets(database: Database, box: SecretBox, *, full: bool) -> int:
    """Return the number of stored secrets that the present keys do not open; without ``full`` only one is tried."""
    count = int(unreadable(database, box))
    if full:
        known = sa.select(hog_function.c.encrypted_inputs).where(hog_function.c.encrypted_inputs.is_not(None))
        with database.read() as connection:
            for sealed in connection.scalars(known):
                try:
                    box.unseal(sealed)
                except SecretsError:
                    count += 1
    return count


def keep_check(database: Database, box: SecretBox) -> None:
    """Make sure that there is a text that the present keys open. To be called for a checked directory."""
    with database.read() as connection:
        sealed = connection.scalar(sa.select(installation.c.sealed_check))
    if sealed is None or unreadable(database, box):
        with database.write() as tx:
            renew_check(tx, box)


def renew_check(tx: Transaction, box: SecretBox) -> None:
    """Seal the text with the newest key."""
    tx.execute(sa.update(installation).values(sealed_check=box.encrypt_text(TEXT)))
