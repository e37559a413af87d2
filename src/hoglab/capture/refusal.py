"""Reasons why a request was not accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hoglab.http.errors import ApiError


class Refusal(Exception):  # noqa: N818 - an answer to the client, not a fault of the server
    """An answer other than 2xx: ``status``, a short ``reason`` and, for 429 and 503, when to retry.

    ``closes``: what is left of the body is not read, so the connection cannot be used again. Spec: sdk-wire 1.5.
    """

    def __init__(
        self, status: int, reason: str, retry_after_s: int | None = None, *, closes: bool = False
    ) -> None:
        super().__init__(reason)
        self.tokens: tuple[str, ...] = ()
        """Texts of the request that may be its project token."""
        self.closes = closes
        self.status = status
        self.reason = reason
        self.retry_after_s = retry_after_s


def undecodable(reason: str) -> Refusal:
    """Return the body is not what the protocol allows: 400."""
    return Refusal(400, reason)


def unread(error: ApiError, limit_bytes: int) -> Refusal:
    """Return the refusal of a body that could not be read, in the words of this wire."""
    if error.status == 413:
        return Refusal(413, f"request body exceeds the limit of {limit_bytes} bytes", closes=True)
    retry_after = error.headers.get("Retry-After")
    return Refusal(
        error.status, _UNREAD[error.status], int(retry_after) if retry_after else None, closes=True
    )


_UNREAD = {
    400: "the request body cannot be read: its chunks are malformed",
    408: "the request body did not arrive in time",
    503: "transient error, please retry",
}


def too_large(limit_bytes: int) -> Refusal:
    """Return the body is larger than the limit of its path: 413."""
    return Refusal(413, f"request body exceeds the limit of {limit_bytes} bytes")


def bad_token(reason: str) -> Refusal:
    """Return the project token is missing or cannot be one: 401 in the wording that SDKs show."""
    return Refusal(401, f"API key is not valid: {reason}")
