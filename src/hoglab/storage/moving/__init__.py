"""Moving an installation between the files of a directory and a PostgreSQL database, all but its events.

The source stands still from the beginning on: no server starts on it, until the move ended or was given up. Rows are
written in the order of their keys, so a move that was cut off goes on after the last one. At the end both sides are
compared by digests; only then the target is at home, and the source says where everything went.
"""

from hoglab.storage.moving.errors import MoveError
from hoglab.storage.moving.estimate import TableEstimate, estimates
from hoglab.storage.moving.location import Location
from hoglab.storage.moving.moving import Moved, cancel, move

__all__ = ["Location", "MoveError", "Moved", "TableEstimate", "cancel", "estimates", "move"]
