"""Errors that say why a result cannot be computed. Every text is one line for the person who reads the results."""

from __future__ import annotations

from hoglab.http.errors import STORE_RETRY_S, ApiError, unavailable, validation_error


class ResultsError(Exception):
    """The base of all reasons why results cannot be computed."""


class DefinitionError(ResultsError):
    """The metric, the exposure criteria or a filter cannot be computed as they are."""


class ComputationError(ResultsError):
    """The computation took too long, needed too much memory, or could not be run now.

    ``retry`` says whether the same question may be answered later.
    """

    def __init__(self, message: str, *, retry: bool) -> None:
        super().__init__(message)
        self.retry = retry


class UnavailableError(ComputationError):
    """The server cannot compute anything now; no question is at fault."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retry=True)


class DidNotEndError(ComputationError):
    """The computation ran out of time or memory, or the server stopped during it: the next try would cost as much."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retry=True)


def wire_error(error: ComputationError) -> ApiError:
    """Return the response to a request whose answer could not be computed.

    503 when the server is at fault, 429 when it may be asked again, else 400.
    """
    if isinstance(error, UnavailableError):
        return unavailable(str(error), STORE_RETRY_S)
    if error.retry:
        return ApiError(429, "throttled_error", "query_limit", str(error), headers={"Retry-After": "30"})
    return validation_error(str(error))
