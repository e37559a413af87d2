"""Sessions of browsers and the links that open them: the rules.

A cookie or a link carries 256 random bits, of which a hash is stored. A session made from a key has the key's
present permissions; one made from a link has the permissions of its user.
"""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from uuid_utils import uuid7

from hoglab.accounts import store
from hoglab.accounts.keys import hash_key, is_key
from hoglab.accounts.principals import PrincipalCache
from hoglab.accounts.service import EVERYWHERE
from hoglab.accounts.usage import SessionUsage
from hoglab.http.management.session_cookie import is_token
from hoglab.http.management.throttling import Rate, Throttle
from hoglab.storage.database import Rebuildable
from hoglab.storage.database.tables import user_session

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from hoglab.accounts.service import AccountService
    from hoglab.http.identity import Principal, Unknown
    from hoglab.storage.database import Database

LINK_LIFETIME = timedelta(minutes=15)
"""Time within which a link opens a session, which it does once."""
IDLE_LIFETIME = timedelta(days=14)
"""Time after its last use at which a session ends."""
LONGEST_LIFETIME = timedelta(days=90)
"""Maximum lifetime of a session."""
MAX_SESSIONS_PER_KEY = 20
"""Sessions that one key opened; one more ends the one of them that was not seen for longest, and no others."""
MAX_SESSIONS_OF_LINKS = 100
"""Sessions of one user that links opened; one more ends the one of them that was not seen for longest."""
MAX_USER_AGENT_CHARACTERS = 400
TRIES = Rate(10, 60.0)
"""Rate limit of failed attempts, by address and by account. It never refuses a request with the right secret."""
LOGINS = Rate(30, 60.0)
"""Rate limit of sessions that one key opens."""


class LoginRefusedError(Exception):
    """Error for a credential that is wrong, used up, expired or revoked; it does not say which."""


class LoginThrottledError(Exception):
    """Error after too many wrong credentials in a short time."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(wait_s)
        self.wait_s = wait_s


@dataclass(frozen=True, slots=True)
class Browser:
    """Browser that a session is opened for."""

    address: str
    user_agent: str


@dataclass(frozen=True, slots=True)
class NewSession:
    """A session and the value of its cookie, which is not stored."""

    principal: Principal
    token: str


class SessionService:
    """Knows every session; implements `hoglab.http.identity.Credentials` for what their cookies carry."""

    def __init__(
        self, database: Database, accounts: AccountService, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._database = database
        self._accounts = accounts
        self.usage = SessionUsage(database, accounts.now)
        self._known = PrincipalCache(self._read_principal, accounts.now, clock)
        self._tries = Throttle((TRIES,), clock)
        self._logins = Throttle((LOGINS,), clock)
        self._throttling = threading.Lock()  # of both
        for topic in ("project", "keys"):
            database.changes.subscribe(topic, lambda _: self._known.forget())

    # Who is calling

    def recall(self, token: str, /) -> Principal | Unknown:
        """Return the user of a session cookie that was seen recently, from memory alone."""
        return self._known.recall(token)

    def authenticate(self, token: str, /) -> Principal | None:
        """Return the user of a session cookie; None when the session ended or never was."""
        return self._known.authenticate(token)

    def used(self, principal: Principal, /) -> None:
        """Record that a session was used; written to the database later."""
        if principal.session_id is not None:
            self.usage.note(principal.session_id)

    def _read_principal(self, secure_value: str) -> Principal | None:
        with self._database.read() as connection:
            row = store.session_by_hash(connection, secure_value)
            if row is None or not hmac.compare_digest(row["secure_value"], secure_value):
                return None
            return self._principal(connection, row)

    def _principal(self, connection: Connection, row: dict[str, Any]) -> Principal | None:
        if row["key_id"] is None:
            whose = self._accounts.principal_of_user(connection, row["user_id"])
        else:
            key = store.key_by_id(connection, row["key_id"])
            whose = None if key is None else self._accounts.principal_of_key(connection, key)
        if whose is None:
            return None
        ends = [row["last_seen_at"] + IDLE_LIFETIME, row["created_at"] + LONGEST_LIFETIME]
        if whose.expires_at is not None:
            ends.append(whose.expires_at)
        if min(ends) <= self._accounts.now():
            return None
        return replace(whose, session_id=row["id"], expires_at=min(ends))

    # Logging in and out

    def new_link(self, user_id: int) -> str:
        """Return the token of a link that opens a session of a user, once, within `LINK_LIFETIME`."""
        token, now = _new_token(), self._accounts.now()
        values = {
            "secure_value": hash_key(token),
            "user_id": user_id,
            "created_at": now,
            "expires_at": now + LINK_LIFETIME,
        }
        with self._database.write() as tx:
            store.insert_link(tx.connection, values)
        return token

    def log_in(self, secret: str, browser: Browser) -> NewSession:
        """Open a session with the token of a link, or with a personal API key.

        Raises `LoginRefusedError`, and `LoginThrottledError` after too many refusals of an address or an account.
        """
        secure_value = hash_key(secret)
        with self._database.read() as connection:
            link = store.link_by_hash(connection, secure_value) if is_token(secret) else None
            key = store.key_by_hash(connection, secure_value) if is_key(secret) else None
        credential = link or key or {"secure_value": hash_key(""), "user_id": None}
        tried = [f"address:{browser.address}"]
        if credential["user_id"] is not None:
            tried.append(f"user:{credential['user_id']}")
        if not hmac.compare_digest(credential["secure_value"], secure_value):
            raise self._refusal(tried)
        if key is not None:
            self._admit(self._logins, key["id"])
        try:
            return self._opened(
                credential["user_id"], None if key is None else key["id"], secure_value, browser
            )
        except LoginRefusedError:
            raise self._refusal(tried) from None

    def _opened(self, user_id: int, key_id: str | None, secure_value: str, browser: Browser) -> NewSession:
        """Return a session of a user, in the transaction that uses the link up."""
        token, now = _new_token(), self._accounts.now()
        row = {
            "id": str(uuid7()),
            "user_id": user_id,
            "key_id": key_id,
            "secure_value": hash_key(token),
            "created_at": now,
            "last_seen_at": now,
            "user_agent": browser.user_agent[:MAX_USER_AGENT_CHARACTERS],
            "ip": browser.address,
        }
        with self._database.write() as tx:
            if key_id is None and not store.use_link(tx.connection, secure_value, now):
                raise LoginRefusedError
            principal = self._principal(tx.connection, row)
            if principal is None:
                raise LoginRefusedError
            most = MAX_SESSIONS_OF_LINKS if key_id is None else MAX_SESSIONS_PER_KEY
            alike = [old for old in store.sessions(tx.connection, user_id) if old["key_id"] == key_id]
            for old in alike[most - 1 :]:
                store.delete_sessions(tx.connection, user_session.c.id == old["id"])
            store.insert_session(tx.connection, row)
            tx.changed("keys", EVERYWHERE)
        self._accounts.used(principal)
        return NewSession(principal, token)

    def _refusal(self, tried: Sequence[str]) -> Exception:
        """Return the error for a wrong credential, which counts for its address and its account, if it has one."""
        try:
            for who in tried:
                self._admit(self._tries, who)
        except LoginThrottledError as error:
            return error
        return LoginRefusedError()

    def _admit(self, throttle: Throttle, who: str) -> None:
        with self._throttling:
            wait_s = throttle.admit(who)
        if wait_s is not None:
            raise LoginThrottledError(wait_s)

    def sessions(self, user_id: int | None = None) -> list[dict[str, Any]]:
        """Return the sessions of a user, or all, that are not over, the one seen last first."""
        with self._database.read() as connection:
            rows = store.sessions(connection, user_id)
            return [row for row in rows if self._principal(connection, row) is not None]

    def principal_of(self, session_id: str, user_id: int) -> Principal | None:
        """Return what one of a user's sessions may do; None when it is over, or there is none."""
        with self._database.read() as connection:
            row = next((row for row in store.sessions(connection, user_id) if row["id"] == session_id), None)
            return None if row is None else self._principal(connection, row)

    def end(self, session_id: str, user_id: int | None = None) -> bool:
        """End a session, of one user or of any. Return False when there is none."""
        where = user_session.c.id == session_id
        if user_id is not None:
            where &= user_session.c.user_id == user_id
        with self._database.write() as tx:
            tx.changed("keys", EVERYWHERE)
            return store.delete_sessions(tx.connection, where) > 0

    def forget_old(self) -> int:
        """Remove ended sessions and links. Return how many."""
        now = self._accounts.now()
        over = (user_session.c.last_seen_at <= now - IDLE_LIFETIME) | (
            user_session.c.created_at <= now - LONGEST_LIFETIME
        )
        with self._database.write(rebuildable=Rebuildable.EXPIRED) as tx:
            return store.delete_sessions(tx.connection, over) + store.delete_links(tx.connection, now)


def login_address(base_url: str, token: str) -> str:
    """Return the address of a link. Browsers do not send the part behind its ``#``."""
    return f"{base_url.rstrip('/')}/ui/login#t={token}"


def login_line(base_url: str, token: str) -> str:
    """Return the link in the form that operators see."""
    minutes = LINK_LIFETIME // timedelta(minutes=1)
    return f"Open {login_address(base_url, token)}   (once, within {minutes} minutes)"


def _new_token() -> str:
    return secrets.token_urlsafe(32)
