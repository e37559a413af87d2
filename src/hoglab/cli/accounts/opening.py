"""Opening the accounts of a data directory from a command, beside a server that may be running on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from hoglab.cli.errors import OperatorError
from hoglab.cli.options import existing_settings, metadata_place

if TYPE_CHECKING:
    from hoglab.accounts.service import AccountService
    from hoglab.storage.database import Database


@contextmanager
def opened_accounts(data: Path | None) -> Iterator[AccountService]:
    """Provide the accounts of a directory, as `opened_database` opens it."""
    with opened_database(data) as (_, accounts):
        yield accounts


@contextmanager
def opened_database(data: Path | None) -> Iterator[tuple[Database, AccountService]]:
    """Provide the metadata of a directory that a server made.

    Needs no lock: ``hoglab.db`` may be shared, and a running server notices changes. Raises `OperatorError`.
    """
    from hoglab.accounts.errors import AccountError
    from hoglab.accounts.service import AccountService
    from hoglab.storage.database import Database, DatabaseError
    from hoglab.storage.directory import DirectoryError

    settings = existing_settings(data)
    try:
        database = Database.open(metadata_place(settings))
        try:
            yield database, AccountService(database)
        finally:
            database.dispose()
    except (DirectoryError, DatabaseError, AccountError) as error:
        raise OperatorError(str(error)) from error
