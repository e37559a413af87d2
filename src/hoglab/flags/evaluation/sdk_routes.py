"""The endpoints around flag evaluation that SDKs and browsers call (spec: sdk-wire 2.5, 4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from hoglab.flags.evaluation.endpoint import EvaluationEndpoint, invalid_token
from hoglab.flags.evaluation.local_evaluation import definitions, etag_matches
from hoglab.flags.evaluation.remote_config import (
    CACHE_CONTROL,
    EMPTY_ANSWERS,
    NO_SURVEYS,
    SiteApp,
    remote_config,
    remote_config_script,
)
from hoglab.http.errors import ApiError, missing_scope, not_found
from hoglab.http.identity import Principal, Unknown
from hoglab.http.management.access import key_from_header
from hoglab.http.requests.body import header
from hoglab.http.responses import JSON, send_answer

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp, Receive, Scope, Send

    from hoglab.flags.evaluation.endpoint import FlagEvaluator
    from hoglab.http.identity import Authenticator, Project

READ_SCOPE = "feature_flag:read"

_DEFINITIONS_ALLOW = b"GET, OPTIONS, HEAD"


def hot_routes(evaluator: FlagEvaluator, authenticator: Authenticator) -> dict[str, ASGIApp]:
    """Return the endpoints with fixed paths (without trailing slash)."""
    routes: dict[str, ASGIApp] = {
        "/flags": EvaluationEndpoint(evaluator),
        "/decide": EvaluationEndpoint(evaluator, decide=True),
        "/flags/definitions": DefinitionsEndpoint(evaluator, authenticator, always_cohorts=True),
        "/api/feature_flag/local_evaluation": DefinitionsEndpoint(
            evaluator, authenticator, always_cohorts=False
        ),
    }
    for path, body in EMPTY_ANSWERS.items():
        routes[path] = ConstantEndpoint(orjson.dumps(body))
    return routes


ABSENT_PATHS = ("/site_app/{rest:path}", "/toolbar{rest:path}")
"""Paths that browsers may request without need: the answer is a 404 that they may read."""

SiteApps = Callable[[int], Sequence[SiteApp]]
"""The code that a project has for browsers; may read the database."""


def sdk_routes(
    evaluator: FlagEvaluator, *, sdk_files: Path | None = None, site_apps: SiteApps = lambda _project_id: ()
) -> list[BaseRoute]:
    """Return the endpoints whose paths have parameters. ``sdk_files`` is a folder with the ``dist`` of posthog-js."""
    config = ConfigEndpoints(evaluator, sdk_files, site_apps)
    return [
        Route("/array/{token}/config", config.json),
        Route("/array/{token}/config/", config.json),
        Route("/array/{token}/config.js", config.script),
        Route("/array/{token}/array.js", config.bundle),
        Route("/static/{name:path}", config.file),
        *(Route(path, _absent) for path in ABSENT_PATHS),
    ]


class ConstantEndpoint:
    """Endpoint of a product that this server does not have: the same empty answer for every request."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        if scope["method"] in ("GET", "HEAD"):
            await send_answer(send, 200, self._body, JSON)
        elif scope["method"] == "OPTIONS":
            await send_answer(send, 204)
        else:
            await send_answer(send, 405, headers=[(b"allow", _DEFINITIONS_ALLOW)])


class ConfigEndpoints:
    """Remote configuration and the scripts of posthog-js."""

    def __init__(self, evaluator: FlagEvaluator, sdk_files: Path | None, site_apps: SiteApps) -> None:
        self._evaluator = evaluator
        self._site_apps = site_apps
        self._sdk_files = sdk_files.resolve() if sdk_files is not None else None

    async def json(self, request: Request) -> Response:
        project, has_flags = await self._project(request)
        token = project.api_token
        body = orjson.dumps(remote_config(token, has_flags=has_flags))
        return Response(body, media_type="application/json", headers={"Cache-Control": CACHE_CONTROL})

    async def script(self, request: Request) -> Response:
        return _javascript(await self._script(request))

    async def bundle(self, request: Request) -> Response:
        script = await self._script(request)
        library = await run_in_threadpool(self._path("array.js").read_bytes)
        return _javascript(library + b"\n" + script)

    async def _script(self, request: Request) -> bytes:
        project, has_flags = await self._project(request)
        apps = await run_in_threadpool(self._site_apps, project.id)
        return remote_config_script(project.api_token, has_flags=has_flags, site_apps=apps)

    async def file(self, request: Request) -> Response:
        name = request.path_params["name"]
        try:
            path = self._path(name)
        except ApiError:
            if name.rpartition("/")[2] != "surveys.js":
                raise
            return _javascript(NO_SURVEYS)
        return FileResponse(path, headers={"Cache-Control": CACHE_CONTROL})

    async def _project(self, request: Request) -> tuple[Project, bool]:
        """Return the project of the token in the path and whether it has active flags. An unknown token is a 404."""
        try:
            project = self._evaluator.project(request.path_params["token"])
        except ApiError:
            raise not_found() from None
        loaded = await self._evaluator.load(project)
        return project, loaded.flags.has_active_flags

    def _path(self, name: str) -> Path:
        """Return a script below the configured folder; a version in front of its name is ignored. Raises 404."""
        if self._sdk_files is None or "\0" in name or not name.endswith((".js", ".js.map")):
            raise not_found()
        for candidate in (name, name.rpartition("/")[2]):
            with suppress(OSError):  # a name that is too long for the file system
                path = (self._sdk_files / candidate).resolve()
                if path.is_relative_to(self._sdk_files) and path.is_file():
                    return path
        raise not_found()


async def _absent(_request: Request) -> Response:
    raise not_found()


def _javascript(body: bytes) -> Response:
    return Response(body, media_type="application/javascript", headers={"Cache-Control": CACHE_CONTROL})


class DefinitionsEndpoint:
    """Flag definitions for local evaluation, for a personal API key that may read flags."""

    def __init__(
        self, evaluator: FlagEvaluator, authenticator: Authenticator, *, always_cohorts: bool
    ) -> None:
        self._evaluator = evaluator
        self._authenticator = authenticator
        self._always_cohorts = always_cohorts

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        method = scope["method"]
        if method == "GET":
            await self._get(scope, send)
        elif method == "HEAD":
            await send_answer(send, 200)
        elif method == "OPTIONS":
            await send_answer(send, 204)
        else:
            await send_answer(send, 405, headers=[(b"allow", _DEFINITIONS_ALLOW)])

    async def _get(self, scope: Scope, send: Send) -> None:
        query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
        principal = await self._principal(scope)
        project = self._project(principal, query.get("token"))
        loaded = await self._evaluator.load(project)
        with_cohorts = self._always_cohorts or query.get("send_cohorts", "false").lower() not in (
            "false",
            "0",
        )
        answer = await asyncio.get_running_loop().run_in_executor(
            self._evaluator.threads, lambda: definitions(loaded, with_cohorts=with_cohorts)
        )
        headers = [(b"etag", answer.etag), (b"cache-control", b"private, must-revalidate")]
        known = header(scope, b"if-none-match")
        if known is not None and etag_matches(known, answer.etag):
            await send_answer(send, 304, headers=headers)
        else:
            await send_answer(send, 200, answer.body, JSON, headers)

    async def _principal(self, scope: Scope) -> Principal:
        """Return the authenticated caller. Raises 401 for an unknown key and 403 for one that may not read flags."""
        key = key_from_header(header(scope, b"authorization"))
        principal = await self._known(key) if key is not None else None
        if principal is None:
            raise ApiError(401, "authentication_error", "authentication_failed", "Invalid API key.")
        if not principal.has_scope(READ_SCOPE):
            raise missing_scope(READ_SCOPE)
        self._authenticator.used(principal)
        return principal

    async def _known(self, key: str) -> Principal | None:
        known = self._authenticator.recall(key)
        if not isinstance(known, Unknown):
            return known
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._evaluator.threads, self._authenticator.authenticate, key)

    def _project(self, principal: Principal, token: str | None) -> Project:
        """Return the project of the token; without one, the project of the key."""
        if token:
            project = self._evaluator.project(token)
        else:
            project_of_key = self._authenticator.project(principal.current_project_id or 0)
            if project_of_key is None:
                raise invalid_token()
            project = project_of_key
        if not principal.reaches_project(project):
            raise ApiError(
                403,
                "authentication_error",
                "permission_denied",
                "The API key has no access to the project of this token.",
            )
        return project
