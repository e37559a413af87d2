"""``hoglab secrets``: the keys that encrypt secrets at rest."""

from __future__ import annotations

import typer

from hoglab.cli.errors import OperatorError
from hoglab.cli.options import DataOption, existing_settings
from hoglab.terminal import echo

secrets_app = typer.Typer(help="Secrets of functions and flags at rest.", no_args_is_help=True)


@secrets_app.callback()
def _group() -> None:
    """Group commands, although there is only one yet."""


@secrets_app.command()
def rotate(data: DataOption = None) -> None:
    """Make a new key and encrypt every stored secret with it. The server must be stopped.

    With HOGLAB_SECRET_KEYS set, no key is made: put the new one first there. Older keys still open what is in flight.
    """
    from hoglab.functions.secrets import SecretBox, SecretsError
    from hoglab.functions.secrets import rotate as encrypt_anew
    from hoglab.storage.database import Database, DatabaseError
    from hoglab.storage.directory import DataDirectory, DirectoryError

    settings = existing_settings(data)
    try:
        with DataDirectory.open(settings.data) as directory:
            database = Database.open(settings.database_address or directory.metadata_path)
            try:
                if not settings.secret_keys:
                    SecretBox.add_key(directory)
                renewed = encrypt_anew(database, SecretBox.open(directory, settings.secret_keys))
            finally:
                database.dispose()
    except (DirectoryError, DatabaseError, SecretsError) as error:
        raise OperatorError(str(error)) from error
    echo(f"encrypted again: {renewed}")
