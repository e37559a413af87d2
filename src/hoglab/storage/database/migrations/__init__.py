"""Bring a database's schema to the newest revision when it is opened.

Each schema has a folder of Alembic revisions here, named by ``MetaData.info["migrations"]``. Revisions are
numbered by hand, in one line without branches; `HEADS` names the newest one, so that a database that is
up to date is recognised without importing Alembic. An empty file of SQLite gets its tables from the code, which
is several times faster than all revisions and needs no Alembic; tests hold both ways to the same schema. On
PostgreSQL the revisions are run, for they also set what the tables in the code do not say.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from sqlalchemy import Column, Connection, MetaData, PrimaryKeyConstraint, String, Table, inspect

from hoglab.storage.database.errors import SchemaTooNewError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from alembic.config import Config

HEADS = {"main": "0046", "queue": "0022"}
"""The newest revision of each schema."""

VERSION_TABLE = "alembic_version"


class Migratable(Protocol):
    """Database as a migration needs it."""

    name: str

    def read(self) -> AbstractContextManager[Connection]: ...

    def before_migration(self, revision: str) -> None:
        """Prepare for a newer revision of a database that has one already."""
        ...

    def migrate(self) -> AbstractContextManager[Connection]:
        """Return a write transaction that keeps every other writer out, in this process and in others."""
        ...


def migrate(database: Migratable, metadata: MetaData) -> bool:
    """Create the tables of an empty file, or run the revisions that a database lacks, in one transaction.

    Returns whether there was anything to do.

    Two processes may start at once: the second one waits for the first and finds nothing to do. Raises
    `SchemaTooNewError` when the stored revision is not one of ours.
    """
    schema = metadata.info["migrations"]
    with database.read() as connection:
        before = current_revision(connection)
    if before == HEADS[schema]:
        return False
    if before is not None and before < HEADS[schema]:
        database.before_migration(before)
    with database.migrate() as connection:
        stored = current_revision(connection)
        if stored == HEADS[schema]:
            return False
        if stored is None and connection.dialect.name == "sqlite":
            _create(connection, metadata)
        else:
            _upgrade(connection, metadata, stored, database.name)
    return True


def _create(connection: Connection, metadata: MetaData) -> None:
    """Create the tables of an empty file, and note the newest revision as Alembic does."""
    metadata.create_all(connection, checkfirst=False)
    versions = Table(
        VERSION_TABLE,
        MetaData(),
        Column("version_num", String(32), primary_key=True),
        PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
    )
    versions.create(connection)
    connection.execute(versions.insert(), {"version_num": HEADS[metadata.info["migrations"]]})


def _upgrade(connection: Connection, metadata: MetaData, stored: str | None, name: str) -> None:
    """Run the revisions that follow the stored one; all of them where none is stored."""
    from alembic import command
    from alembic.script import ScriptDirectory
    from alembic.script.revision import RevisionError
    from alembic.util import CommandError

    config = alembic_config(metadata, connection)
    try:
        ScriptDirectory.from_config(config).get_revision(stored or "base")
    except (CommandError, RevisionError) as error:
        raise SchemaTooNewError(name, stored or "") from error
    command.upgrade(config, "head")


def current_revision(connection: Connection) -> str | None:
    """Return the revision that the database has; None when it is empty."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    row = connection.exec_driver_sql(f"SELECT version_num FROM {VERSION_TABLE}").first()  # noqa: S608
    return None if row is None else str(row[0])


def alembic_config(metadata: MetaData, connection: Connection) -> Config:
    """Return the Alembic configuration of a schema, bound to a connection inside a transaction."""
    from alembic.config import Config

    folder = Path(__file__).parent
    config = Config()
    # Alembic reads option values with %-interpolation.
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.set_main_option("version_locations", str(folder / metadata.info["migrations"]).replace("%", "%%"))
    config.set_main_option("path_separator", "newline")
    config.set_main_option("file_template", "revision_%%(rev)s")
    config.attributes["connection"] = connection
    config.attributes["metadata"] = metadata
    return config


def write_revision(metadata: MetaData, connection: Connection, revision: str, message: str) -> Path:
    """Compare a database with the tables, and write the revision that makes them equal; for developers."""
    from alembic import command

    script = command.revision(
        alembic_config(metadata, connection), message=message, autogenerate=True, rev_id=revision
    )
    if script is None or isinstance(script, list):
        raise RuntimeError("nothing was written")
    return Path(script.path)
