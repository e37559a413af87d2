"""Refusals of a function's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hoglab.http.errors import VALIDATION, ApiError, conflict, from_details

if TYPE_CHECKING:
    from pydantic import ValidationError

Path = tuple[str | int, ...]


def stale_update() -> ApiError:
    """Return the 409 for a function that another request changed meanwhile."""
    return conflict(
        "This function changed since you previewed the publish, either the draft or the live config. "
        "Preview again to see where things stand now.",
        "stale_update",
    )


class InvalidFunctionError(ApiError):
    """400 for an error in a function's configuration. ``path`` leads to it from the top of the body."""

    def __init__(
        self,
        detail: str,
        *path: str | int,
        code: str = "invalid_input",
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        attr = "__".join(str(part) for part in path) or None
        super().__init__(400, VALIDATION, code, detail, attr, extra=extra)
        self.path: Path = path

    @classmethod
    def from_pydantic(cls, error: ValidationError) -> InvalidFunctionError:
        """Return the first error of a schema."""
        details = error.errors(include_url=False)[0]
        known = from_details(details)
        return cls(known.detail, *details["loc"], code=known.code)

    def nested(self) -> dict[str, Any]:
        """Return the error as a tree of fields: ``{"inputs": {"url": ["This field is required."]}}``."""
        outermost, *inner = self.path or ("non_field_errors",)
        answer: Any = [self.detail]
        for part in reversed(inner):
            answer = {str(part): answer}
        return {str(outermost): answer}
