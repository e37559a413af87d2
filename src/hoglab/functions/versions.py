"""Versions of functions, and returning to one (spec: hog-functions-api 20.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hoglab.accounts import store as accounts
from hoglab.functions import revisions
from hoglab.functions.configuration import FunctionPatch
from hoglab.functions.configuration.stored import live_config, read_configuration
from hoglab.http.errors import not_found
from hoglab.http.fields.wire import user_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection

    from hoglab.functions.service import FunctionService
    from hoglab.functions.store import Row
    from hoglab.http.identity import Project, User

MAX_VERSION = 2**31 - 1
"""The highest number of a version."""


class FunctionVersions:
    """The versions of functions, as the API shows them."""

    def __init__(self, service: FunctionService) -> None:
        self._service = service

    def page(
        self, project: Project, function_id: str, limit: int, offset: int
    ) -> tuple[list[dict[str, Any]], int]:
        """Return a page of a function's versions, newest first, and how many are kept. Raises 404."""
        with self._service.database.read() as connection:
            self._service.row(connection, project, function_id)
            rows, count = revisions.page(connection, function_id, limit, offset)
            authors = accounts.users(connection, (row["created_by_id"] for row in rows))
            return [_version(row, authors.get(row["created_by_id"])) for row in rows], count

    def read(self, project: Project, function_id: str, version: int | None) -> dict[str, Any]:
        """Return one version with its content. Raises 404."""
        with self._service.database.read() as connection:
            self._service.row(connection, project, function_id)
            row = self._revision(connection, function_id, version)
            author = accounts.users(connection, [row["created_by_id"]]).get(row["created_by_id"])
            return {**_version(row, author), "content": row["content"]}

    def changes(
        self, project: Project, function_id: str, version: int | None, to: int | None
    ) -> dict[str, Any]:
        """Return the changes from one version to another; ``to`` None is the present. Raises 404."""
        with self._service.database.read() as connection:
            row = self._service.row(connection, project, function_id)
            before = self._revision(connection, function_id, version)
            if to is None:
                after, to = live_config(read_configuration(row, self._service.box)), row["version"]
            else:
                after = self._revision(connection, function_id, to)["content"]
        changes = revisions.differences(before["content"], after)
        return {"from_version": version, "to_version": to, "changes": changes}

    def roll_back(
        self, project: Project, user_id: int | None, function_id: str, version: int | None, *, force: bool
    ) -> dict[str, Any]:
        """Restore the configuration of a version; secrets stay as they are. Raises the errors of `update`."""
        content = self.content(project, function_id, version)
        return self._service.update(project, user_id, function_id, FunctionPatch({**content, "force": force}))

    def content(self, project: Project, function_id: str, version: int | None) -> Mapping[str, Any]:
        """Return the content of a version. Raises 404."""
        with self._service.database.read() as connection:
            self._service.row(connection, project, function_id)
            content: Mapping[str, Any] = self._revision(connection, function_id, version)["content"]
            return {"x_delivery": None, **content}  # a version without a field had no value for it

    def _revision(self, connection: Connection, function_id: str, version: int | None) -> Row:
        known = version is not None and 0 < version <= MAX_VERSION
        row = revisions.get(connection, function_id, version or 0) if known else None
        if row is None:
            raise not_found("No such revision for this function.")
        return row


def _version(row: Row, author: User | None) -> dict[str, Any]:
    return {
        "version": row["version"],
        "created_at": row["created_at"],
        "created_by": user_object(author),
    }
