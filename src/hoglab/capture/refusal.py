"""Why a request was not accepted."""

from __future__ import annotations


class Refusal(Exception):  # noqa: N818 - an answer to the client, not a fault of the server
    """An answer other than 2xx: ``status``, a short ``reason`` and, for 429 and 503, when to retry.

    Spec: sdk-wire 1.5.
    """

    def __init__(self, status: int, reason: str, retry_after_s: int | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.retry_after_s = retry_after_s


def undecodable(reason: str) -> Refusal:
    """The body is not what the protocol allows: 400."""
    return Refusal(400, reason)


def too_large(limit_bytes: int) -> Refusal:
    """The body is larger than the limit of its path: 413."""
    return Refusal(413, f"request body exceeds the limit of {limit_bytes} bytes")


def bad_token(reason: str) -> Refusal:
    """The project token is missing or cannot be one: 401 in the wording that SDKs show."""
    return Refusal(401, f"API key is not valid: {reason}")
