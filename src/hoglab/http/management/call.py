"""One authorised request, as handlers see it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, get_args
from urllib.parse import parse_qsl

import orjson
from pydantic import BaseModel, ValidationError

from hoglab.fairness.fair_semaphore import Holder
from hoglab.http import errors
from hoglab.http.fields.fields import JsonAny, JsonList, JsonObject
from hoglab.http.management.pagination import DEFAULT_LIMIT, MAX_LIMIT, Page, read_page, replace_query
from hoglab.http.management.preconditions import EntityTags

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from pydantic.fields import FieldInfo
    from starlette.requests import Request

    from hoglab.http.identity import Principal, Project
    from hoglab.http.requests.body import Body

ModelT = TypeVar("ModelT", bound=BaseModel)


def holder_of(principal: Principal, project: Project | None) -> Holder:
    """Return the project (of paths without one the user) as the owner, and the key as the member of it that counts.

    Sessions that were opened with a key count as that key, or it would be as many as it opens.
    """
    owner = f"user:{principal.user.id}" if project is None else f"project:{project.id}"
    return Holder(owner, principal.key_id or principal.session_id)


@dataclass
class Call:
    """A request that passed every check up to its body. Handlers get one as their first argument."""

    request: Request
    caller: Principal | None
    now: datetime
    decoded: Body
    path_project: Project | None = None
    public_url: str | None = None
    """Base URL of links, when it is not the address that the request was sent to."""
    notes: dict[str, Any] = field(default_factory=dict)
    """Fields that a handler adds to the access log."""

    @property
    def principal(self) -> Principal:
        """Authenticated caller. Raises `LookupError` for operations that are open to everybody."""
        if self.caller is None:
            raise LookupError("this operation does not ask who calls")
        return self.caller

    @property
    def project(self) -> Project:
        """The project that the path names. Routes outside of projects have none: `LookupError`."""
        if self.path_project is None:
            raise LookupError("this route belongs to no project")
        return self.path_project

    @property
    def holder(self) -> Holder:
        """The holder that places, threads and streams of this request are counted for."""
        return holder_of(self.principal, self.path_project)

    @property
    def body(self) -> dict[str, Any]:
        """The decoded body. Raises 400 when it is JSON, but no object."""
        value = self.decoded.value
        if not isinstance(value, dict):
            name = type(value).__name__
            raise errors.validation_error(f"Invalid data. Expected a dictionary, but got {name}.")
        return value

    @property
    def raw_json(self) -> Any:
        """The decoded body, any JSON value."""
        return self.decoded.value

    def validate(self, model: type[ModelT], value: Any = None) -> ModelT:
        """Return the body (or another value of it) as ``model``. Raises the first error as 400 of the wire."""
        data = self.body if value is None else value
        if self.decoded.is_form and isinstance(data, dict):
            data = _scalars(data, model)
        try:
            return model.model_validate(data)
        except ValidationError as error:
            raise errors.from_pydantic(error) from None

    @cached_property
    def params(self) -> dict[str, str]:
        """The query parameters; of several with one name the last counts."""
        return dict(parse_qsl(self._query_string, keep_blank_values=True, errors="replace"))

    def query(self, name: str, default: str | None = None) -> str | None:
        """Return one query parameter, as it was sent."""
        return self.params.get(name, default)

    def query_list(self, name: str) -> list[str]:
        """Return every value of a query parameter that may be repeated."""
        pairs = parse_qsl(self._query_string, keep_blank_values=True, errors="replace")
        return [value for key, value in pairs if key == name]

    def validate_query(self, model: type[ModelT]) -> ModelT:
        """Return the query parameters as ``model``. Raises the first error as 400 of the wire."""
        try:
            return model.model_validate(self.params)
        except ValidationError as error:
            raise errors.from_pydantic(error) from None

    @property
    def if_match(self) -> EntityTags | None:
        """The states in which the client wants the object changed; None when it does not care."""
        return EntityTags.of(self.request.headers.get("if-match"))

    def page(self, default: int = DEFAULT_LIMIT, maximum: int = MAX_LIMIT) -> Page:
        """Return the page that ``limit`` and ``offset`` ask for; bad values are never an error."""
        return read_page(self.query("limit"), self.query("offset"), default=default, maximum=maximum)

    def link(self, **changes: int | str | None) -> str:
        """Return the address of this request with some query parameters replaced; None removes one."""
        query = replace_query(self._query_string, changes)
        return f"{self.address}?{query}" if query else self.address

    @property
    def address(self) -> str:
        """The absolute address of this request without its query, path as received."""
        scope = self.request.scope
        raw: bytes | None = scope.get("raw_path")
        path = raw.partition(b"?")[0].decode("latin-1") if raw else scope["path"]
        return f"{self.base_url}{path}"

    @property
    def base_url(self) -> str:
        """Scheme and host under which the client reaches this server, without a slash at the end."""
        if self.public_url is not None:
            return self.public_url.rstrip("/")
        scope = self.request.scope
        host = self.request.headers.get("host")
        if not host:
            server = scope.get("server") or ("localhost", None)
            host = f"{server[0]}:{server[1]}" if server[1] else str(server[0])
        return f"{scope['scheme']}://{host}"

    @property
    def _query_string(self) -> str:
        raw: bytes = self.request.scope["query_string"]
        return raw.decode("utf-8", "replace")

    def has_scope(self, scope: str) -> bool:
        """Return whether the key holds a scope, or one that implies it."""
        return self.principal.has_scope(scope)

    def require(self, scope: str) -> None:
        """Raise 403 unless the key holds a further scope."""
        if not self.principal.has_scope(scope):
            raise errors.missing_scope(scope)

    def access_level(self, created_by_id: int | None) -> str:
        """Return the ``user_access_level`` of an object with that creator (spec: experiments-api 1.10)."""
        return self.principal.access_level(created_by_id)


def _scalars(form: dict[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    """Return a form's fields as ``model`` expects them.

    The last of a repeated scalar counts, lists collect, and JSON may come as its text.
    """
    marked = {info.alias or name: set(_markers(info)) for name, info in model.model_fields.items()}
    fixed: dict[str, Any] = {}
    for name, value in form.items():
        markers = marked.get(name, set())
        if JsonList in markers and isinstance(value, list):
            fixed[name] = value
            continue
        last = value[-1] if isinstance(value, list) else value
        if any(issubclass(marker, (JsonObject, JsonList, JsonAny)) for marker in markers):
            last = _json_text(last)
        fixed[name] = [last] if JsonList in markers and isinstance(last, str) else last
    return fixed


def _markers(info: FieldInfo) -> Iterator[type[Any]]:
    """Yield the classes of the markers on a field, also inside ``… | None``."""
    for marker in info.metadata:
        yield type(marker)
    for part in get_args(info.annotation):
        for marker in get_args(part)[1:]:
            yield type(marker)


def _json_text(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
