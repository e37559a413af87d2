"""The checks before a handler runs: the caller and its permissions (spec: experiments-api 1.2, 1.3, 1.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from hoglab.http import errors
from hoglab.http.management.routing import Either
from hoglab.patterns import DOTALL, anchored

if TYPE_CHECKING:
    from hoglab.http.identity import Principal, Project
    from hoglab.http.management.routing import Operation, ScopeNeed

HEADER = "Authorization header"
BODY = "body"
QUERY = "query string"

BODY_KEY = "personal_api_key"
TOKEN_PREFIX = "phc_"  # noqa: S105 - the public prefix of project tokens

_BEARER = anchored(r"Bearer\s+(\S.*)", DOTALL)


def key_from_header(value: str | None) -> str | None:
    """Return the key of an ``Authorization: Bearer`` header; the word is case-sensitive, blanks follow."""
    match = _BEARER.fullmatch(value) if value is not None else None
    return match[1].strip() if match is not None else None


def key_from_body(value: Any) -> str | None:
    """Return the key inside a decoded body."""
    key = value.get(BODY_KEY) if isinstance(value, dict) else None
    return key.strip() or None if isinstance(key, str) else None


def key_from_query(query_string: bytes) -> str | None:
    """Return the key inside a query string; of several the last counts."""
    if BODY_KEY.encode() not in query_string:
        return None
    pairs = parse_qsl(query_string.decode("utf-8", "replace"), errors="replace")
    return dict(pairs).get(BODY_KEY, "").strip() or None


def no_key(text: str) -> str:
    """Return an explanation of the text that was sent in place of a key, as a further sentence.

    Empty where the text looks like a key.
    """
    if text.startswith(TOKEN_PREFIX):
        return (
            " It is a project token (phc_…), which SDKs send with events; this endpoint needs a personal API key "
            "(phx_…): `hoglab keys create` makes one."
        )
    return ""


def check_scopes(principal: Principal, needs: tuple[ScopeNeed, ...] | None) -> None:
    """Raise 403 for the first need that the key does not meet, or when the route takes no keys at all."""
    if needs is None:
        raise errors.permission_denied("This action does not support personal API key access")
    for need in needs:
        scopes = need.scopes if isinstance(need, Either) else (need,)
        if not any(principal.has_scope(scope) for scope in scopes):
            raise errors.missing_scope(scopes[0])


def requested_project_id(segment: str, principal: Principal) -> int:
    """Return the project that a path segment means: a number, or ``@current``. Raises 404 for anything else."""
    if segment == "@current":
        if principal.current_project_id is None:
            raise errors.project_not_found()
        return principal.current_project_id
    if segment.isascii() and segment.isdigit() and len(segment) <= 18:
        return int(segment)
    raise errors.project_not_found()


def check_project_limit(principal: Principal, project_id: int) -> None:
    """Raise 403 when the key is limited to other projects."""
    if principal.scoped_projects is not None and project_id not in principal.scoped_projects:
        raise errors.permission_denied(
            f"API key does not have access to the requested project: ID {project_id}."
        )


def check_organization_limit(principal: Principal, organization_id: str) -> None:
    """Raise 403 when the key is limited to other organizations."""
    if principal.scoped_organizations is not None and organization_id not in principal.scoped_organizations:
        raise errors.permission_denied(
            f"API key does not have access to the requested organization: ID {organization_id}."
        )


def check_membership(principal: Principal, project: Project) -> None:
    """Raise 403 when the user is no member of the project's organization."""
    if project.organization_id not in principal.levels:
        raise errors.permission_denied("You don't have access to the project.")


def check_outside_projects(principal: Principal, operation: Operation | None) -> None:
    """Raise 403 when a limited key is used on a route where its limits could not be kept."""
    if operation is None or operation.limited_keys:
        return
    if principal.scoped_projects is not None:
        raise errors.permission_denied(
            "API keys with scoped projects are only supported on project-based views."
        )
    if principal.scoped_organizations is not None:
        raise errors.permission_denied(
            "API keys with scoped organizations are only supported on organization-based views."
        )


def check_level(principal: Principal, level: int) -> None:
    """Raise 403 when the membership at hand is below ``level`` (`identity.Level`)."""
    if (principal.level or 0) < level:
        raise errors.role_too_low("manager")
