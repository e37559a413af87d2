"""The metadata database: engine, transactions, migrations and change notification."""

from hoglab.storage.database.engine import Database
from hoglab.storage.database.types import from_micros, to_micros

__all__ = ["Database", "from_micros", "to_micros"]
