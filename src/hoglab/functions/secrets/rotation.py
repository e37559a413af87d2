"""Encrypting stored secrets again, after a key was put in front of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import select, update

from hoglab.flags.payloads import resealed
from hoglab.functions.secrets.sealed_check import renew_check
from hoglab.storage.database.tables import feature_flag, hog_function

if TYPE_CHECKING:
    from hoglab.functions.secrets.box import SecretBox
    from hoglab.storage.database import Database


def rotate(database: Database, box: SecretBox) -> int:
    """Encrypt the secrets of all functions and the payloads of all flags with the newest key, all or none.

    Returns how many functions and flags had something to encrypt. Raises `SecretsError` for what no key opens.
    """
    renewed = 0
    with database.write() as tx:
        functions = select(hog_function.c.id, hog_function.c.encrypted_inputs).where(
            hog_function.c.encrypted_inputs.is_not(None)
        )
        for row in tx.connection.execute(functions).all():
            values = {"encrypted_inputs": box.renewed(row.encrypted_inputs)}
            tx.connection.execute(update(hog_function).where(hog_function.c.id == row.id).values(**values))
            renewed += 1
        flags = select(feature_flag.c.id, feature_flag.c.project_id, feature_flag.c.filters).where(
            feature_flag.c.has_encrypted_payloads.is_(True)
        )
        for flag in tx.connection.execute(flags).all():
            filters = resealed(flag.filters, box.renewed_text)
            if filters is not None:
                tx.connection.execute(
                    update(feature_flag).where(feature_flag.c.id == flag.id).values(filters=filters)
                )
                tx.changed("flags", flag.project_id)
                renewed += 1
        renew_check(tx, box)
    return renewed
