"""The list of functions: its filters and its search (spec: hog-functions-api 13)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hoglab.accounts import store as accounts
from hoglab.functions import store
from hoglab.functions.api.search import Hit, find, holds_any
from hoglab.http.errors import validation_error
from hoglab.http.fields.dates import parse_moment

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

    from hoglab.functions.presentation import Presenter
    from hoglab.functions.store import Selection
    from hoglab.http.identity import Project
    from hoglab.storage.database import Database


@dataclass(frozen=True, slots=True)
class FunctionListing:
    """Parameters of a list of functions."""

    selection: Selection
    search: str | None = None
    filter_groups: Sequence[Mapping[str, Any]] = ()
    full: bool = False


class FunctionList:
    """Reads pages of the list."""

    def __init__(self, database: Database, presenter: Presenter) -> None:
        self._database = database
        self._presenter = presenter

    def page(
        self, project: Project, listing: FunctionListing, limit: int, offset: int
    ) -> tuple[list[dict[str, Any]], int]:
        """Return a page of functions and how many there are. Raises 400 for filters that are not valid."""
        with self._database.read() as connection:
            self._check_author(connection, listing.selection)
            if listing.search or listing.filter_groups:
                return self._search(connection, project, listing, limit, offset)
            selection = listing.selection
            rows = store.page(
                connection, project.id, selection, limit=limit, offset=offset, full=listing.full
            )
            shown = (
                self._presenter.full(connection, rows)
                if listing.full
                else self._presenter.summaries(connection, rows)
            )
            return shown, store.count(connection, project.id, selection)

    def _check_author(self, connection: Connection, selection: Selection) -> None:
        author = selection.created_by
        if author is not None and accounts.user_by_id(connection, author) is None:
            raise validation_error(
                "Select a valid choice. That choice is not one of the available choices.",
                "created_by",
                "invalid_choice",
            )

    def _search(
        self, connection: Connection, project: Project, listing: FunctionListing, limit: int, offset: int
    ) -> tuple[list[dict[str, Any]], int]:
        rows = store.searchable(connection, project.id, listing.selection)
        if listing.filter_groups:
            rows = [row for row in rows if holds_any(row["filters"], listing.filter_groups)]
        hits: dict[str, Hit] = {}
        ids = store.ids_of(rows)
        if listing.search:
            hits = {hit.id: hit for hit in find(rows, listing.search)}
            ids = list(hits)
        wanted = ids[offset : offset + limit]
        rows_by_id = store.by_ids(connection, project.id, wanted, full=listing.full)
        ordered = [rows_by_id[function_id] for function_id in wanted]
        shown = (
            self._presenter.full(connection, ordered)
            if listing.full
            else self._presenter.summaries(connection, ordered)
        )
        if listing.search:
            shown = [{**item, "search_match_type": hits[item["id"]].match} for item in shown]
        return shown, len(ids)


def moment_or_none(text: str | None, name: str) -> datetime | None:
    """Return a date-time of a query parameter. Raises 400."""
    if text is None:
        return None
    try:
        return parse_moment(text)
    except ValueError:
        raise validation_error("Enter a valid date/time.", name) from None
