"""Errors and the one place that gives them their shape on the wire (spec: experiments-api 1.5).

Every error body has the four keys ``type``, ``code``, ``detail`` and ``attr``. Rooms raise what the functions
below return; a room's own exception may also derive from `ApiError`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException

from hoglab.storage.catching_up import NotCaughtUpError
from hoglab.storage.database.errors import DatabaseBusyError, DatabaseError, DatabaseFullError
from hoglab.storage.event_store import EventStoreUnavailableError, QueryMemoryError, QueryTimeoutError

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

VALIDATION = "validation_error"
INVALID_REQUEST = "invalid_request"
AUTHENTICATION = "authentication_error"
THROTTLED = "throttled_error"
SERVER = "server_error"

CROWDED_RETRY_S = 1
"""Value of ``Retry-After`` when there is no memory for another body."""
BUSY_RETRY_S = 2
"""Value of ``Retry-After`` when the database is busy."""
FULL_RETRY_S = 30
"""Value of ``Retry-After`` when the disk is full."""
STORE_RETRY_S = 5
"""Value of ``Retry-After`` when the event store cannot be read, or not in time."""


class WireError(Exception):
    """An error that knows its answer: a status, headers and a JSON body."""

    def __init__(
        self, status: int, body: Mapping[str, Any] | None, headers: Mapping[str, str] | None
    ) -> None:
        super().__init__(status, body)
        self.status = status
        self.body = body
        self.headers = dict(headers or {})


class ApiError(WireError):
    """An error with the usual body. ``extra`` keys come after the four usual ones."""

    def __init__(
        self,
        status: int,
        type: str,  # noqa: A002 - the name on the wire
        code: str,
        detail: str,
        attr: str | None = None,
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        body = {"type": type, "code": code, "detail": detail, "attr": attr, **(extra or {})}
        super().__init__(status, body, headers)
        self.type = type
        self.code = code
        self.detail = detail
        self.attr = attr

    def __str__(self) -> str:
        place = f" ({self.attr})" if self.attr else ""
        return f"{self.status} {self.code}{place}: {self.detail}"


class BareError(WireError):
    """Error of the few endpoints that answer with a bare ``{"detail": …}`` or ``{"error": …}``, or no body."""

    def __init__(
        self, status: int, body: Mapping[str, Any] | None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status, body, headers)


def validation_error(detail: str, attr: str | None = None, code: str = "invalid_input") -> ApiError:
    """Return 400: a value that cannot be accepted, or a rule that the request breaks."""
    return ApiError(400, VALIDATION, "invalid_input" if code == "invalid" else code, detail, attr)


def required(attr: str) -> ApiError:
    """Return 400: a field that must be sent is missing."""
    return validation_error("This field is required.", attr, "required")


def does_not_exist(pk: object, attr: str) -> ApiError:
    """Return 400: a field names an object that is not there."""
    return validation_error(f'Invalid pk "{pk}" - object does not exist.', attr, "does_not_exist")


def parse_error(detail: str) -> ApiError:
    """Return 400: the body could not be read at all."""
    return ApiError(400, INVALID_REQUEST, "parse_error", detail)


def not_authenticated(hint: str = "") -> ApiError:
    """Return 401: no key came with the request."""
    return ApiError(
        401,
        AUTHENTICATION,
        "not_authenticated",
        f"Authentication credentials were not provided.{hint}",
        headers={"WWW-Authenticate": "Bearer"},
    )


def authentication_failed(place: str, hint: str = "") -> ApiError:
    """Return 401: the key is unknown, revoked or expired.

    ``place`` says where it was found (see `hoglab.http.management.access`), ``hint`` what the text is if not a key.
    """
    return ApiError(
        401,
        AUTHENTICATION,
        "authentication_failed",
        f"Personal API key found in request {place} is invalid.{hint}",
        headers={"WWW-Authenticate": "Bearer"},
    )


def session_ended() -> ApiError:
    """Return 401: the session of a cookie is over, or never was."""
    return ApiError(
        401,
        AUTHENTICATION,
        "authentication_failed",
        "The session has ended. Log in again.",
        headers={"WWW-Authenticate": "Bearer"},
    )


def login_refused() -> ApiError:
    """Return 401: the credential does not open a session. The answer is the same for every reason."""
    return ApiError(
        401,
        AUTHENTICATION,
        "authentication_failed",
        "The link or key does not log anybody in: it is wrong, used already, expired or revoked.",
        headers={"WWW-Authenticate": "Bearer"},
    )


def foreign_page() -> ApiError:
    """Return 403: a page of another origin had a browser send what only pages of this server may send."""
    return permission_denied("Only pages of this server may do this, not those of another origin.")


def metrics_refused(hint: str) -> ApiError:
    """Return 401: the metrics are not public."""
    return ApiError(
        401,
        AUTHENTICATION,
        "not_authenticated",
        f"Metrics are for the operator. {hint}",
        headers={"WWW-Authenticate": "Bearer"},
    )


def permission_denied(detail: str) -> ApiError:
    """Return 403: the key or the role behind it does not reach this far."""
    return ApiError(403, AUTHENTICATION, "permission_denied", detail)


def missing_scope(scope: str) -> ApiError:
    """Return 403: the key lacks a scope."""
    return permission_denied(f"API key missing required scope '{scope}'")


def role_too_low(level: str) -> ApiError:
    """Return 403: the user may not act at this level: ``viewer``, ``editor`` or ``manager``."""
    return permission_denied(f"You do not have {level} access to this resource.")


def not_found(detail: str = "Not found.") -> ApiError:
    """Return 404: the object is missing, or belongs to somebody else."""
    return ApiError(404, INVALID_REQUEST, "not_found", detail)


def project_not_found() -> ApiError:
    """Return 404: the path names no project."""
    return not_found("Project not found.")


def endpoint_not_found(path: str) -> ApiError:
    """Return 404: no route has this path."""
    return ApiError(404, INVALID_REQUEST, "endpoint_not_found", f"Endpoint {path} not found.")


def method_not_allowed(method: str, allow: str | None = None) -> ApiError:
    """Return 405: the path exists, but not with this method."""
    headers = {"Allow": allow} if allow is not None else None
    detail = f'Method "{method}" not allowed.'
    return ApiError(405, INVALID_REQUEST, "method_not_allowed", detail, headers=headers)


def request_timeout() -> ApiError:
    """Return 408: the body did not arrive in time."""
    return ApiError(
        408,
        INVALID_REQUEST,
        "request_timeout",
        "The request body did not arrive in time.",
        headers={"Retry-After": "1", "Connection": "close"},
    )


def conflict(detail: str, code: str = "conflict", headers: Mapping[str, str] | None = None) -> ApiError:
    """Return 409: the object has changed meanwhile."""
    return ApiError(409, SERVER, code, detail, headers=headers)


def unprocessable(detail: str, code: str, attr: str | None = None) -> ApiError:
    """Return 422: well-formed, but contradicting an earlier request."""
    return ApiError(422, INVALID_REQUEST, code, detail, attr)


def precondition_failed(current_tag: str) -> ApiError:
    """Return 412: the object is no longer what the client believes; ``ETag`` says which state it is in."""
    detail = "This has been changed since you read it. Read it again, then repeat your change."
    return ApiError(412, INVALID_REQUEST, "precondition_failed", detail, headers={"ETag": current_tag})


def bad_host() -> ApiError:
    """Return 400: the request names no host, or names it twice."""
    return ApiError(
        400,
        INVALID_REQUEST,
        "bad_request",
        "The request must have exactly one valid Host header.",
        headers={"Connection": "close"},
    )


def broken_body() -> ApiError:
    """Return 400: the framing of the body is broken, so nobody knows where it ends."""
    return ApiError(
        400,
        INVALID_REQUEST,
        "parse_error",
        "The request body cannot be read: its chunks are malformed, or it ends too early.",
        headers={"Connection": "close"},
    )


def too_much_at_once() -> ApiError:
    """Return 503: there is no memory for another body now."""
    return ApiError(
        503,
        SERVER,
        "service_unavailable",
        "The server is receiving too much at a time. Try again.",
        headers={"Retry-After": str(CROWDED_RETRY_S), "Connection": "close"},
    )


def payload_too_large(limit_bytes: int) -> ApiError:
    """Return 413: the body is larger than the server takes."""
    return ApiError(
        413,
        INVALID_REQUEST,
        "payload_too_large",
        f"The request body exceeds the limit of {limit_bytes} bytes.",
        headers={"Connection": "close"},
    )


def unsupported_media_type(media_type: str, hint: str = "") -> ApiError:
    """Return 415: the body has a content type that is not read here; ``hint`` says which one is, where that differs."""
    detail = f'Unsupported media type "{media_type}" in request.{hint}'
    return ApiError(415, INVALID_REQUEST, "unsupported_media_type", detail)


def throttled(wait_s: float) -> ApiError:
    """Return 429: too many requests; ``wait_s`` is rounded up to whole seconds (spec: experiments-api 1.8)."""
    wait = max(1, math.ceil(wait_s))
    unit = "second" if wait == 1 else "seconds"
    return ApiError(
        429,
        THROTTLED,
        "throttled",
        f"Request was throttled. Expected available in {wait} {unit}.",
        headers={"Retry-After": str(wait)},
    )


def server_error() -> ApiError:
    """Return 500: a defect of ours; what happened is in the log, not in the answer."""
    return ApiError(500, SERVER, "error", "A server error occurred.")


def unavailable(detail: str, retry_after_s: int) -> ApiError:
    """Return 503: it cannot be done now, and may be tried again."""
    return ApiError(503, SERVER, "service_unavailable", detail, headers={"Retry-After": str(retry_after_s)})


def known_error(error: BaseException) -> WireError | None:
    """Return the answer for an exception; None for a defect of ours."""
    if isinstance(error, WireError):
        return error
    if isinstance(error, HTTPException):
        return _from_starlette(error)
    if isinstance(error, DatabaseBusyError):
        return unavailable("The database is busy.", BUSY_RETRY_S)
    if isinstance(error, DatabaseFullError):
        return unavailable("The disk of the server is full.", FULL_RETRY_S)
    if isinstance(error, DatabaseError):
        return unavailable("The database cannot be read or written.", BUSY_RETRY_S)
    if isinstance(error, (EventStoreUnavailableError, QueryMemoryError, QueryTimeoutError)):
        return unavailable("The event store cannot be read.", STORE_RETRY_S)
    if isinstance(error, NotCaughtUpError):
        return unavailable("Events that were accepted before are still being stored.", STORE_RETRY_S)
    return None


def _from_starlette(error: HTTPException) -> ApiError:
    """Return wire error for an exception that plain Starlette routes raise themselves."""
    if error.status_code == 404:
        return not_found()
    kind = SERVER if error.status_code >= 500 else INVALID_REQUEST
    return ApiError(error.status_code, kind, "error", error.detail, headers=error.headers)


# What Pydantic calls an error, and what the wire calls it. Our own field types (http/fields/fields.py) use the
# wire's codes and texts themselves; these are for plain annotations such as ``int`` or ``list[str]``.
_FROM_PYDANTIC: dict[str, tuple[str, str | None]] = {
    "missing": ("required", "This field is required."),
    "string_type": ("invalid_input", "Not a valid string."),
    "bool_type": ("invalid_input", "Must be a valid boolean."),
    "bool_parsing": ("invalid_input", "Must be a valid boolean."),
    "int_type": ("invalid_input", "A valid integer is required."),
    "int_parsing": ("invalid_input", "A valid integer is required."),
    "int_parsing_size": ("invalid_input", "A valid integer is required."),
    "int_from_float": ("invalid_input", "A valid integer is required."),
    "float_type": ("invalid_input", "A valid number is required."),
    "float_parsing": ("invalid_input", "A valid number is required."),
    "finite_number": ("invalid_input", "A valid number is required."),
    "extra_forbidden": ("invalid_key", "This key is not known here."),
    "union_tag_not_found": ("required", "This field is required."),
}
_LIST_TYPES = {"list_type", "tuple_type", "set_type"}
_DICT_TYPES = {"dict_type", "model_type", "model_attributes_type", "mapping_type"}
_CHOICE_TYPES = {"enum", "literal_error"}


def from_pydantic(error: ValidationError) -> ApiError:
    """Return the first error that Pydantic found, in the order of the fields, as a 400 of the wire."""
    return from_details(error.errors(include_url=False)[0])


def from_details(details: ErrorDetails) -> ApiError:
    """Return one error of Pydantic as a 400 of the wire."""
    attr = "__".join(str(part) for part in details["loc"]) or None
    kind, value = details["type"], details["input"]
    if value is None and kind.endswith(("_type", "_parsing", "enum", "literal_error")):
        return validation_error("This field may not be null.", attr, "null")
    if kind in _FROM_PYDANTIC:
        code, text = _FROM_PYDANTIC[kind]
        return validation_error(text or details["msg"], attr, code)
    name = type(value).__name__
    if kind in _LIST_TYPES:
        return validation_error(f'Expected a list of items but got type "{name}".', attr, "not_a_list")
    if kind in _DICT_TYPES:
        return validation_error(f'Expected a dictionary of items but got type "{name}".', attr, "not_a_dict")
    if kind in _CHOICE_TYPES:
        return validation_error(f'"{value}" is not a valid choice.', attr, "invalid_choice")
    context = details.get("ctx", {})
    if kind == "union_tag_invalid":
        if value.get(context["discriminator"].strip("'")) is None:
            return validation_error("This field may not be null.", attr, "null")
        return validation_error(f'"{context["tag"]}" is not a valid choice.', attr, "invalid_choice")
    if kind == "value_error":
        return validation_error(str(context.get("error", details["msg"])), attr)
    code, text = _limits(kind, context) or (kind, details["msg"])
    return validation_error(text, attr, code if code in WIRE_CODES or "." in code else "invalid_input")


def _limits(kind: str, context: Mapping[str, Any]) -> tuple[str, str] | None:
    match kind:
        case "string_too_long":
            return "max_length", f"Ensure this field has no more than {context['max_length']} characters."
        case "string_too_short":
            return "blank", "This field may not be blank."
        case "greater_than_equal":
            return "min_value", f"Ensure this value is greater than or equal to {context['ge']}."
        case "less_than_equal":
            return "max_value", f"Ensure this value is less than or equal to {context['le']}."
        case "greater_than":
            return "min_value", f"Ensure this value is greater than {context['gt']}."
        case "less_than":
            return "max_value", f"Ensure this value is less than {context['lt']}."
        case _:
            return None


WIRE_CODES = frozenset(
    {
        "blank",
        "cohort_does_not_exist",
        "does_not_exist",
        "incorrect_type",
        "invalid_choice",
        "invalid_input",
        "invalid_key",
        "max_length",
        "max_value",
        "min_value",
        "not_a_dict",
        "not_a_list",
        "null",
        "null_characters_not_allowed",
        "required",
        "surrogate_characters_not_allowed",
        "unique",
    }
)
"""Codes of validation errors that pass as they are; any other becomes ``invalid_input``."""
