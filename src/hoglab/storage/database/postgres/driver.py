"""Connections of psycopg as all of ours are."""

from __future__ import annotations

from typing import Any

from hoglab.storage.database.errors import UnsupportedDatabaseError
from hoglab.storage.server_address import ESCAPES, ServerAddress

try:
    import psycopg
    from psycopg.adapt import Dumper
    from psycopg.conninfo import conninfo_to_dict
except ImportError as error:
    raise UnsupportedDatabaseError(
        "PostgreSQL needs its driver: install hoglab with it (pip install 'hoglab[postgres]')"
    ) from error

CONNECT_TIMEOUT_S = 5
LOCK_TIMEOUT_S = 30
"""Time for which a statement waits for a lock, and a writer for its turn."""
STATEMENT_TIMEOUT_S = 120
IDLE_IN_TRANSACTION_TIMEOUT_S = 20
"""Time after which the server ends a transaction whose process is idle: waits for its locks are longer than that."""
IDLE_READER_TIMEOUT_S = 600
"""Time after which the server ends an idle transaction that only reads: sending to a slow client may take long."""

NUL_STAND_IN = "\N{REPLACEMENT CHARACTER}"


class _TextDumper(Dumper):
    """Texts of an unknown type, as psycopg's own; NUL, which PostgreSQL cannot keep, becomes U+FFFD as in PostHog."""

    def dump(self, obj: str) -> bytes:
        return obj.replace("\0", NUL_STAND_IN).encode()


class _BinaryTextDumper(_TextDumper):
    """Dumper of texts that are sent as binary, where arrays of texts cost a fraction."""

    format = psycopg.pq.Format.BINARY
    oid = psycopg.adapters.types["text"].oid


class Driver:
    """Makes connections to one address, which look for tables in one schema."""

    def __init__(self, url: str, schema: str) -> None:
        """Raise `UnsupportedDatabaseError` for an address that is none."""
        known = _parts(url)
        settings = {
            "search_path": f"{schema},public",
            "lock_timeout": f"{LOCK_TIMEOUT_S}s",
            "statement_timeout": f"{STATEMENT_TIMEOUT_S}s",
        }
        self._ours = " ".join(f"-c {name}={value}" for name, value in settings.items())
        self._operators = known.pop("options", "")
        self._arguments: dict[str, Any] = {
            "connect_timeout": CONNECT_TIMEOUT_S,
            "application_name": "hoglab",
            **known,
            "client_encoding": "UTF8",
        }
        self.name = f"the PostgreSQL database {known.get('dbname', '')} on {known.get('host', 'localhost')}"

    def connect(self, *, autocommit: bool = False, reader: bool = False) -> psycopg.Connection[Any]:
        """Return a new connection. ``reader``: its transactions only read. Raises `psycopg.Error`."""
        idle_s = IDLE_READER_TIMEOUT_S if reader else IDLE_IN_TRANSACTION_TIMEOUT_S
        idle = f"-c idle_in_transaction_session_timeout={idle_s}s"
        options = f"{self._ours} {idle} {self._operators}"  # the operator's win
        connection = psycopg.connect(autocommit=autocommit, options=options, **self._arguments)
        connection.adapters.register_dumper(str, _BinaryTextDumper)
        connection.adapters.register_dumper(
            str, _TextDumper
        )  # the last is used where a statement does not say
        return connection


def _parts(url: str) -> dict[str, Any]:
    """Return what libpq makes of an address. Its own errors quote the address, so none of them is passed on."""
    try:
        address = ServerAddress.parse(url)
        return conninfo_to_dict(url.strip())
    except ValueError as error:
        fault = str(error)
    except psycopg.ProgrammingError:
        known = {option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()}
        strange = address.parameters.keys() - known
        fault = "libpq does not know one of its parameters" if strange else f"libpq refuses it: {ESCAPES}"
    raise UnsupportedDatabaseError(f"the address of the database is not understood: {fault}")
