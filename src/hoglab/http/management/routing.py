"""Declarations of endpoints.

A `ResourceRouter` is a list of operations. What happens around a handler (access checks, body, errors) and
the OpenAPI document are made from that list; a handler is a plain function that gets an authorised `Call`::

    router = ResourceRouter("/experiments", tag="experiments", scopes=("experiment:read", "experiment:write"))

    @router.get("/{experiment_id}", response=ExperimentOut, summary="Read an experiment")
    def read_experiment(call: Call, experiment_id: IntId) -> dict[str, Any]:
        return service.read(call.project, experiment_id)

Routing rules: spec experiments-api 1.1, scopes 1.3, DELETE that is refused 1.5.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NewType, TypedDict, TypeVar, Unpack, cast

from pydantic import BaseModel

from hoglab.http.fields.fields import parse_uuid

IntId = NewType("IntId", int)
"""A path parameter that is a decimal integer; anything else is 404 "Not found."."""
UuidId = NewType("UuidId", str)
"""A path parameter that is a UUID, given to the handler as its usual text; else 404 "Not found."."""
TextId = NewType("TextId", str)
"""A path parameter that is any text without a slash."""

PROJECT_PREFIXES = ("/api/projects", "/api/environments")
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")

HandlerT = TypeVar("HandlerT", bound=Callable[..., Any])


class Kind(Enum):
    """Kind of a path parameter."""

    INTEGER = "integer"
    UUID = "uuid"
    TEXT = "text"

    def read(self, segment: str) -> int | str | None:
        """Return the value of a path segment; None when it is none of this kind."""
        match self:
            case Kind.INTEGER:
                good = segment.isascii() and segment.isdigit() and len(segment) <= 19
                number = int(segment) if good else -1
                return number if 0 <= number < 2**63 else None
            case Kind.UUID:
                return parse_uuid(segment)
            case Kind.TEXT:
                return segment if "\0" not in segment else None


_KINDS = {
    "IntId": Kind.INTEGER,
    "int": Kind.INTEGER,
    "UuidId": Kind.UUID,
    "TextId": Kind.TEXT,
    "str": Kind.TEXT,
}


LAG_HEADER = "X-Hoglab-Ingestion-Lag"
"""Header of answers that follow from stored events: seconds for which the oldest accepted event waits to be stored."""


@dataclass(frozen=True, slots=True)
class Either:
    """A need that any one of several scopes meets; the first is named when none is there."""

    scopes: tuple[str, ...]


def either(*scopes: str) -> Either:
    """Return a scope requirement that any one of ``scopes`` meets."""
    return Either(scopes)


class _Special(Enum):
    INHERIT = "the router's scope for the method"
    ANY_KEY = "any valid key"
    OPEN = "everybody"


INHERIT = _Special.INHERIT
ANY_KEY = _Special.ANY_KEY
"""Scope of operations that any valid key may use."""
OPEN = _Special.OPEN
"""Scope of public operations, which need no key: none is looked for.

They take JSON alone, and nothing from pages of another origin.
"""

ScopeNeed = str | Either
Scope = ScopeNeed | Sequence[ScopeNeed] | _Special | None
"""Scopes are checked in order. None: personal API keys are not accepted (403)."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path, with all that is known about it."""

    method: str
    path: str
    """Full template, no slash at the end: ``/api/projects/{project_id}/experiments/{experiment_id}``."""
    handler: Callable[..., Any] | None
    """None: the method is refused with an empty 405."""
    needs: tuple[ScopeNeed, ...] | None
    is_open: bool
    """Whether the caller is not authenticated."""
    tag: str
    project_scoped: bool
    params: Mapping[str, Kind] = field(default_factory=dict)
    body: Any = None
    query: type[BaseModel] | None = None
    response: Any = None
    status: int = 200
    summary: str = ""
    description: str = ""
    errors: tuple[int, ...] = ()
    answers: Mapping[int, Any] = field(default_factory=dict)
    """Models of answers besides ``response``, by their status."""
    media_type: str = "application/json"
    """Media type of a successful response."""
    limited_keys: bool = True
    """Whether keys that are limited to some projects or organizations are let in."""
    is_async: bool = False
    heavy: bool = False
    """Whether the handler runs in the pool of slow ones."""
    versioned: bool = False
    """Whether the answer is one object whose state has an entity tag."""
    reads_events: bool = False
    """Whether the answer follows from stored events, and so tells by how much these are late."""
    recall: Callable[..., Any] | None = None
    """Function called before the handler: the answer from memory, or None."""
    for_strangers: bool = False
    """Whether pages of this server are answered also without key and session, by a call without a caller."""
    shows_secret: bool = False
    """Whether the answer may have a key or a secret in it, and so is not compressed: its length would tell of it."""

    @property
    def is_tagged(self) -> bool:
        """Whether answers have entity tags: those of their object's state, or of what they are."""
        return self.method == "GET" and self.media_type == "application/json" and not self.shows_secret

    @property
    def is_alias(self) -> bool:
        """Whether this is the ``/api/environments`` twin of another operation."""
        return self.path.startswith("/api/environments/")


class Options(TypedDict, total=False):
    """Options of an operation."""

    for_strangers: bool
    """Whether pages of this server are answered also without key and session: `Call.caller` is None then."""
    scope: Scope
    """Default: the router's read scope for GET, its write scope for the others."""
    body: Any
    """Model of the body, for the documents; the handler itself calls ``call.validate``."""
    query: type[BaseModel]
    """Model of the query parameters, for the documents."""
    response: Any
    """Model (or any type that Pydantic can describe) of the answer, for the documents."""
    status: int
    """Status of the answer unless the handler returns a whole `Response`; default 200."""
    summary: str
    """Default: the first line of the handler's docstring."""
    errors: Sequence[int]
    """Statuses to document beyond those that follow from the operation itself."""
    answers: Mapping[int, Any]
    """Models of further answers, by status: another success, or an error whose body may be other than the usual one."""
    media_type: str
    """Media type of a successful response, when it is not JSON."""
    limited_keys: bool
    """Whether keys limited to some projects or organizations are let in; default: inside projects only."""
    heavy: bool
    """Whether the handler may take seconds: it then runs in a pool where it keeps no quick one waiting."""
    versioned: bool
    """Whether the answer is one object: it gets an ``ETag``, and GET answers ``If-None-Match``. Handlers that change
    it pass `Call.if_match` to the code that holds the transaction."""
    reads_events: bool
    """Whether the answer follows from stored events: it then tells in `LAG_HEADER` by how much these are late."""
    shows_secret: bool
    """Whether the answer may have a key or a secret in it: it is not compressed, and has no tag of its bytes."""
    recall: Callable[..., Any] | None
    """Function called before the handler, with its arguments, on the event loop: the answer from memory, or None.

    A read that is answered so costs no thread.
    """


class ResourceRouter:
    """The endpoints of one resource.

    ``prefix`` is relative to ``/api/projects/{project_id}`` (and its alias ``/api/environments/…``), or
    absolute when ``project_scoped`` is False. ``scopes`` are the read and the write scope that operations
    need unless they name their own: the first for GET, the second for all else.
    """

    def __init__(
        self,
        prefix: str = "",
        *,
        tag: str,
        scopes: tuple[ScopeNeed, ScopeNeed] | None = None,
        project_scoped: bool = True,
    ) -> None:
        self.prefix = prefix.rstrip("/")
        self.tag = tag
        self.operations: list[Operation] = []
        self._scopes = scopes
        self._project_scoped = project_scoped

    def add(
        self,
        method: str,
        path: str,
        handler: Callable[..., Any] | None,
        **options: Unpack[Options],
    ) -> None:
        """Declare one operation. Raises `ValueError` when path and handler do not fit each other."""
        relative = f"{self.prefix}/{path.strip('/')}".rstrip("/")
        params = _params(relative, handler)
        if method == "POST" and inspect.iscoroutinefunction(handler):
            raise ValueError(
                f"{relative}: the handler of a POST is a plain function, for its idempotency key"
            )
        description = inspect.getdoc(handler) or "" if handler is not None else ""
        summary, _, description = description.partition("\n")
        needs = self._needs(method, options.get("scope", INHERIT))
        prefixes = (
            [f"{prefix}/{{project_id}}" for prefix in PROJECT_PREFIXES] if self._project_scoped else [""]
        )
        for prefix in prefixes:
            self.operations.append(
                Operation(
                    method=method,
                    path=prefix + relative,
                    handler=handler,
                    needs=needs,
                    is_open=options.get("scope") is OPEN,
                    tag=self.tag,
                    project_scoped=self._project_scoped,
                    params=params,
                    body=options.get("body"),
                    query=options.get("query"),
                    response=options.get("response"),
                    status=options.get("status", 200),
                    summary=options.get("summary", summary),
                    description=description.strip(),
                    errors=tuple(options.get("errors", ())),
                    answers=options.get("answers", {}),
                    media_type=options.get("media_type", "application/json"),
                    limited_keys=options.get("limited_keys", self._project_scoped),
                    is_async=inspect.iscoroutinefunction(handler),
                    heavy=options.get("heavy", False),
                    versioned=options.get("versioned", False),
                    reads_events=options.get("reads_events", False),
                    recall=options.get("recall"),
                    for_strangers=options.get("for_strangers", False),
                    shows_secret=options.get("shows_secret", False),
                )
            )

    def _needs(self, method: str, scope: Scope) -> tuple[ScopeNeed, ...] | None:
        if scope is INHERIT:
            if self._scopes is None:
                raise ValueError(f"the {self.tag} router has no scopes, so each operation must name its own")
            return (self._scopes[0 if method == "GET" else 1],)
        if scope is ANY_KEY or scope is OPEN:
            return ()
        if scope is None:
            return None
        if isinstance(scope, (str, Either)):
            return (scope,)
        return tuple(cast("Sequence[ScopeNeed]", scope))

    def get(self, path: str, **options: Unpack[Options]) -> Callable[[HandlerT], HandlerT]:
        """Declare a GET; HEAD and OPTIONS come with it."""
        return self._decorator("GET", path, options)

    def post(self, path: str, **options: Unpack[Options]) -> Callable[[HandlerT], HandlerT]:
        """Declare a POST."""
        return self._decorator("POST", path, options)

    def put(self, path: str, **options: Unpack[Options]) -> Callable[[HandlerT], HandlerT]:
        """Declare a PUT."""
        return self._decorator("PUT", path, options)

    def patch(self, path: str, **options: Unpack[Options]) -> Callable[[HandlerT], HandlerT]:
        """Declare a PATCH."""
        return self._decorator("PATCH", path, options)

    def delete(self, path: str, **options: Unpack[Options]) -> Callable[[HandlerT], HandlerT]:
        """Declare a DELETE."""
        return self._decorator("DELETE", path, options)

    def _decorator(self, method: str, path: str, options: Options) -> Callable[[HandlerT], HandlerT]:
        def register(handler: HandlerT) -> HandlerT:
            self.add(method, path, handler, **options)
            return handler

        return register

    def forbid_delete(self, path: str, *, scope: Scope = INHERIT) -> None:
        """Answer DELETE with an empty 405 once the key is known to have the scope, for every id."""
        self.add(
            "DELETE", path, None, scope=scope, status=405, summary="Refused: set deleted by PATCH instead"
        )


def _params(path: str, handler: Callable[..., Any] | None) -> dict[str, Kind]:
    """Return the path parameters of a template, with the kinds that the handler's annotations give them."""
    names = [part[1:-1] for part in path.split("/") if part.startswith("{") and part.endswith("}")]
    if len(set(names)) != len(names) or "project_id" in names:
        raise ValueError(f"{path}: each path parameter needs a name of its own, and not project_id")
    if handler is None:
        return dict.fromkeys(names, Kind.TEXT)
    parameters = list(inspect.signature(handler).parameters.values())[1:]
    if sorted(parameter.name for parameter in parameters) != sorted(names):
        raise ValueError(
            f"{path}: {handler.__qualname__} must take the call, then {', '.join(names) or 'nothing'}"
        )
    kinds = {}
    for parameter in parameters:
        annotation = parameter.annotation
        # Read by name, so that the types may be imported for type checkers alone.
        word = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
        kind = _KINDS.get(word.rpartition(".")[2])
        if kind is None:
            raise ValueError(f"{path}: {parameter.name} must be an IntId, UuidId or TextId")
        kinds[parameter.name] = kind
    return kinds
