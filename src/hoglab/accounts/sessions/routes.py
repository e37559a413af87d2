"""The endpoints of sessions: logging in and out, and managing open sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hoglab.accounts.routes import check_grant
from hoglab.accounts.sessions.schemas import SessionIn, SessionItem, SessionOut, SessionState
from hoglab.accounts.sessions.service import (
    LONGEST_LIFETIME,
    Browser,
    LoginRefusedError,
    LoginThrottledError,
)
from hoglab.accounts.views import me_object
from hoglab.http import errors
from hoglab.http.management.routing import ANY_KEY, OPEN, ResourceRouter
from hoglab.http.management.session_cookie import session_token, set_cookie
from hoglab.http.requests.client_ip import nearest_address, peer_address
from hoglab.http.responses import empty_response, json_response

if TYPE_CHECKING:
    from starlette.responses import Response

    from hoglab.accounts.service import AccountService
    from hoglab.accounts.sessions.service import SessionService
    from hoglab.http.identity import Principal
    from hoglab.http.management.call import Call
    from hoglab.http.management.routing import UuidId

_NO_COOKIE = " This is about the session of a browser, and no cookie of one came."


def routers(sessions: SessionService, accounts: AccountService) -> list[ResourceRouter]:
    """Return every router of sessions."""
    return [_session(sessions, accounts), _sessions(sessions)]


def _session(sessions: SessionService, accounts: AccountService) -> ResourceRouter:
    router = ResourceRouter("/api/session", tag="sessions", project_scoped=False)

    def shown(principal: Principal) -> dict[str, Any]:
        return {
            "id": principal.session_id,
            "user": me_object(accounts, principal),
            "scopes": sorted(principal.scopes),
            "expires_at": principal.expires_at,
        }

    @router.post(
        "/",
        scope=OPEN,
        body=SessionIn,
        response=SessionOut,
        status=201,
        errors=(401, 429),
        limited_keys=True,
        shows_secret=True,
    )
    def open_session(call: Call) -> Response:
        """Log in: open a session, whose cookie is in the answer."""
        scope = call.request.scope
        secret = _secret(call.validate(SessionIn))
        former = session_token(scope, call.public_url)
        try:
            opened = sessions.log_in(secret, _browser(call))
        except LoginRefusedError:
            raise errors.login_refused() from None
        except LoginThrottledError as error:
            raise errors.throttled(error.wait_s) from None
        replaced = None if former is None else sessions.authenticate(former)
        if replaced is not None and replaced.session_id is not None:
            sessions.end(replaced.session_id)
        call.notes["session_id"] = opened.principal.session_id
        cookie = set_cookie(scope, call.public_url, opened.token, round(LONGEST_LIFETIME.total_seconds()))
        return json_response(shown(opened.principal), 201, {"Set-Cookie": cookie})

    @router.get("/", scope=ANY_KEY, response=SessionState, limited_keys=True, for_strangers=True)
    def read_session(call: Call) -> dict[str, Any]:
        """Read the session whose cookie is in the request.

        Pages of this server also get an answer when nobody is logged in: ``id``, ``user`` and ``expires_at`` are
        null.
        """
        if call.caller is None:
            return {"id": None, "user": None, "scopes": [], "expires_at": None}
        _own_session(call)
        return shown(call.principal)

    @router.delete("/", scope=ANY_KEY, status=204, limited_keys=True)
    def end_session(call: Call) -> Response:
        """Log out: end the session whose cookie is in the request."""
        sessions.end(_own_session(call))
        cookie = set_cookie(call.request.scope, call.public_url, "", 0)
        return empty_response(headers={"Set-Cookie": cookie})

    return router


def _sessions(sessions: SessionService) -> ResourceRouter:
    router = ResourceRouter(
        "/api/sessions", tag="sessions", scopes=("user:read", "user:write"), project_scoped=False
    )

    @router.get("/", response=list[SessionItem])
    def list_sessions(call: Call) -> list[dict[str, Any]]:
        """List the user's sessions, the one seen last first."""
        shown = ("id", "created_at", "last_seen_at", "user_agent", "ip")
        return [
            {**{name: row[name] for name in shown}, "current": row["id"] == call.principal.session_id}
            for row in sessions.sessions(call.principal.user.id)
        ]

    @router.delete("/{session_id}", status=204)
    def end_one_session(call: Call, session_id: UuidId) -> None:
        """End one of the user's sessions, wherever it is open, that may do no more than the caller."""
        principal = sessions.principal_of(session_id, call.principal.user.id)
        if principal is None:
            raise errors.not_found()
        check_grant(call.principal, principal.scopes, principal.key_expires_at)
        sessions.end(session_id)

    return router


def _secret(body: SessionIn) -> str:
    """Return the secret that opens a session. Raises 400 unless exactly one was sent."""
    if body.email is not None or body.password is not None:
        raise errors.validation_error(
            "Logging in with e-mail and password is not offered: open a link of `hoglab login`, or send a "
            "personal API key.",
            "email" if body.email is not None else "password",
        )
    if body.token is not None and body.personal_api_key is not None:
        raise errors.validation_error("Send a token or a key, not both.", "personal_api_key")
    secret = body.token or body.personal_api_key
    if secret is None:
        raise errors.required("token")
    return secret


def _browser(call: Call) -> Browser:
    """Return the browser that logs in.

    A proxy's word for the address counts where the settings name the server's public URL.
    """
    scope = call.request.scope
    address = peer_address(scope) if call.public_url is None else nearest_address(scope)
    return Browser(address, call.request.headers.get("user-agent", ""))


def _own_session(call: Call) -> str:
    if call.principal.session_id is None:
        raise errors.not_authenticated(_NO_COOKIE)
    return call.principal.session_id
