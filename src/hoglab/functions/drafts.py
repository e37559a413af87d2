"""Drafts: staged configurations of functions (spec: hog-functions-api 20.2).

A former version is copied into the draft, and published once somebody has looked at it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import orjson

from hoglab.functions import revisions
from hoglab.functions.configuration import FunctionPatch
from hoglab.functions.configuration.stored import live_config, read_configuration
from hoglab.functions.errors import InvalidFunctionError, stale_update
from hoglab.functions.secrets import SecretsError
from hoglab.http.errors import conflict, validation_error
from hoglab.storage.database.types import to_micros

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from hoglab.functions.configuration.schemas import PublishBody
    from hoglab.functions.service import FunctionService
    from hoglab.functions.store import Row
    from hoglab.http.identity import Project

TOKEN_LIFE = timedelta(minutes=15)
"""Time within which a preview may be confirmed."""


class Drafts:
    """The drafts of functions, as the API changes them."""

    def __init__(self, service: FunctionService) -> None:
        self._service = service

    def restore(
        self,
        project: Project,
        user_id: int | None,
        function_id: str,
        content: Mapping[str, Any],
        *,
        overwrite: bool,
    ) -> dict[str, Any]:
        """Make the content of a version the draft. Raises 404, and 409 for a draft that is not to be overwritten."""
        service = self._service
        with service.database.write() as tx:
            row = service.row(tx.connection, project, function_id)
            if revisions.draft(tx.connection, function_id) is not None:
                if not overwrite:
                    raise conflict("This function has a staged draft already.", "draft_exists")
                revisions.discard_draft(tx.connection, function_id)
            revisions.stage(tx.connection, function_id, content, user_id=user_id, at=service.now())
            service.log(tx, project, user_id, "revision_restored", row, None)
        return service.get(project, function_id)

    def discard(self, project: Project, user_id: int | None, function_id: str) -> dict[str, Any]:
        """Delete the draft, if there is one. Raises 404."""
        service = self._service
        with service.database.write() as tx:
            row = service.row(tx.connection, project, function_id)
            if revisions.discard_draft(tx.connection, function_id):
                service.log(tx, project, user_id, "draft_discarded", row, None)
        return service.get(project, function_id)

    def publish(
        self, project: Project, user_id: int | None, function_id: str, body: PublishBody
    ) -> dict[str, Any]:
        """Show what the draft would change, or make it the configuration.

        Raises the errors of `FunctionService.update`.
        """
        service = self._service
        with service.database.read() as connection:
            row = service.row(connection, project, function_id)
            draft = revisions.draft(connection, function_id)
            if draft is None:
                raise validation_error("This function has no staged draft to publish.")
            live = live_config(read_configuration(row, service.box))
        staged_at: datetime = draft["created_at"]
        if not body.confirm:
            changed = revisions.differences(live, draft["content"])
            return {
                "published": False,
                "draft_updated_at": staged_at,
                "confirm_token": self._token(row, staged_at),
                "changed_fields": [change["field"] for change in changed],
                "function": None,
            }
        if body.confirm_token is not None:
            self._check(body.confirm_token, row, staged_at)
        elif row["enabled"]:
            raise InvalidFunctionError("This field is required.", "confirm_token", code="required")
        sent = FunctionPatch({**draft["content"], "base_updated_at": row["updated_at"].isoformat()})
        function = service.update(project, user_id, function_id, sent, publishes=staged_at)
        return {
            "published": True,
            "draft_updated_at": None,
            "confirm_token": None,
            "changed_fields": None,
            "function": function,
        }

    def _token(self, row: Row, staged_at: datetime) -> str:
        until = self._service.now() + TOKEN_LIFE
        return self._service.box.encrypt_text(
            orjson.dumps([row["id"], *map(to_micros, (staged_at, row["updated_at"], until))]).decode()
        )

    def _check(self, token: str, row: Row, staged_at: datetime) -> None:
        """Raise 400 for an invalid token, 409 for one of another state or time."""
        try:
            function_id, staged_us, live_us, until_us = orjson.loads(self._service.box.decrypt_text(token))
        except (SecretsError, ValueError, UnicodeError):
            raise InvalidFunctionError("This is no token of a preview.", "confirm_token") from None
        known = [row["id"], to_micros(staged_at), to_micros(row["updated_at"])]
        if [function_id, staged_us, live_us] != known or to_micros(self._service.now()) > until_us:
            raise stale_update()
