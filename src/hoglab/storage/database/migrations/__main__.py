"""Command for developers: ``python -m hoglab.storage.database.migrations main 0002 "Name the change"``.

Builds a database from the revisions that exist, compares it with the tables in the code and writes the
revision that makes them equal, to be read and corrected by a person. `HEADS` is raised by hand.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from hoglab.storage.database import tables
from hoglab.storage.database.migrations import alembic_config, write_revision
from hoglab.storage.database.sqlite import SqliteConnections


def main() -> None:
    from alembic import command
    from alembic.script import ScriptDirectory

    schemas = {schema.info["migrations"]: schema for schema in (tables.metadata, tables.queue_metadata)}
    parser = argparse.ArgumentParser(prog="python -m hoglab.storage.database.migrations", description=__doc__)
    parser.add_argument("schema", choices=sorted(schemas))
    parser.add_argument("revision", help="four digits, one more than the newest")
    parser.add_argument("message")
    arguments = parser.parse_args()
    metadata = schemas[arguments.schema]
    with tempfile.TemporaryDirectory() as folder:
        connections = SqliteConnections(Path(folder) / "empty.db", metadata)
        with connections.migrate() as connection:
            config = alembic_config(metadata, connection)
            if ScriptDirectory.from_config(config).get_current_head() is not None:
                command.upgrade(config, "head")
            write_revision(metadata, connection, arguments.revision, arguments.message)
        connections.dispose()


if __name__ == "__main__":
    main()
