"""Functions as the API shows them: rows with their secrets marked, their authors, and their states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

from hoglab.accounts import store as accounts
from hoglab.functions import revisions
from hoglab.functions.configuration.stored import full_form, read_configuration, summary
from hoglab.functions.status import UNKNOWN, FunctionStates, Status, status_of

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from hoglab.functions.secrets import SecretBox
    from hoglab.functions.store import Row


_logger = structlog.get_logger("hoglab.functions")


@dataclass(frozen=True, slots=True)
class Presenter:
    """Shows rows. ``states``: the runtime's view of functions."""

    box: SecretBox
    states: FunctionStates

    def full(self, connection: Connection, rows: Sequence[Row]) -> list[dict[str, Any]]:
        """Return the whole objects."""
        configurations = {row["id"]: read_configuration(row, self.box) for row in rows}
        authors = accounts.users(connection, (row["created_by_id"] for row in rows))
        known = self._known_states(rows)
        drafts = revisions.drafts(connection, configurations.keys())
        return [
            full_form(
                row,
                configurations[row["id"]],
                authors.get(row["created_by_id"]),
                status_of(row["id"], enabled=row["enabled"], known=known),
                drafts.get(row["id"]),
            )
            for row in rows
        ]

    def summaries(self, connection: Connection, rows: Sequence[Row]) -> list[dict[str, Any]]:
        """Return the items of a list."""
        authors = accounts.users(connection, (row["created_by_id"] for row in rows))
        known = self._known_states(rows)
        return [
            summary(
                row,
                authors.get(row["created_by_id"]),
                status_of(row["id"], enabled=row["enabled"], known=known),
            )
            for row in rows
        ]

    def _known_states(self, rows: Sequence[Row]) -> Mapping[str, Status]:
        """Return the states of functions from the runtime, in one call; unknown for all when the call fails."""
        ids = [row["id"] for row in rows]
        try:
            return self.states.statuses(ids)
        except Exception:
            _logger.exception("function_states_unknown")
            return dict.fromkeys(ids, UNKNOWN)
