"""POST requests that may be sent again without taking effect again.

A client sends ``Idempotency-Key`` with a value of its own choice. The first request with it is carried out; later
ones get the same answer (with ``Idempotency-Replayed: true``) for `KEPT_FOR`. Rules as in the IETF draft
"The Idempotency-Key HTTP Header Field": 422 for another request under the same key, 409 while the first one runs.

Answers of success are kept, encrypted, because they may hold new secrets, and are for the same key with the same
rights alone: what a key may not have, or may have no more, no repetition hands out. A request that was refused
changed nothing, so its key is free again. The row of a key is marked in the transaction of the first change of a
request. A process knows which requests it is carrying out; a row of its own without an answer that is of none of
these was cut off because the database could not be written, and its mark says whether the request may run again. A
row of another process was cut off when that has ended: where no two share the database it has, else it is believed to
when the lease of the row, `LEASE`, is over. A process that lost its lease changes nothing any more.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import orjson
import structlog
from sqlalchemy import and_, delete, select, update
from starlette.responses import Response

from hoglab.http import errors
from hoglab.patterns import anchored
from hoglab.storage.database import DatabaseError, Rebuildable, repeat_conflicts
from hoglab.storage.database.tables.requests import idempotency_key
from hoglab.storage.database.upsert import upsert

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement

    from hoglab.http.identity import Principal
    from hoglab.http.management.call import Call
    from hoglab.http.management.cipher import Cipher
    from hoglab.storage.database import Database, Transaction

HEADER = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
KEPT_FOR = timedelta(hours=24)
"""Time for which a key is remembered."""
LEASE = timedelta(minutes=5)
"""Time after which other servers on the same database believe that a request's server died while it was carried out."""
PRUNE_EVERY = timedelta(minutes=10)
MAX_KEY_CHARACTERS = 255
MAX_ANSWER_BYTES = 1024 * 1024
"""A longer answer is not kept: its request is known to have taken effect, and 409 says so."""
RETRY_AFTER_S = 1
"""Value of ``Retry-After`` while the first request is being carried out."""

_KEPT_HEADERS = ("content-type", "etag", "cache-control")
_KEY = anchored(rf"[\x21-\x7e]{{1,{MAX_KEY_CHARACTERS}}}")

_log = structlog.get_logger("hoglab.http")
_row = idempotency_key.c


@dataclass(frozen=True, slots=True)
class _Claim:
    """One request under a key."""

    user_id: int
    key: str
    fingerprint: str
    now: datetime

    @property
    def name(self) -> tuple[int, str]:
        return self.user_id, self.key

    @property
    def row(self) -> ColumnElement[bool]:
        return and_(_row.user_id == self.user_id, _row.key == self.key)


class Idempotency:
    """Carries out requests with an idempotency key, once each."""

    def __init__(self, database: Database, cipher: Cipher) -> None:
        self._database = database
        self._cipher = cipher
        self._owner = str(uuid4())
        self._pruned_at: datetime | None = None
        self._running: dict[tuple[int, str], str] = {}  # fingerprints of the requests being carried out
        self._lock = threading.Lock()  # of the two above

    def answer(self, call: Call, raw_body: bytes, handle: Callable[[], Response]) -> Response:
        """Return the answer to a request that has the header: that of ``handle``, or the stored one.

        Called in the thread of the handler. Raises 400 for an invalid key, 409 and 422, and the errors of
        ``handle``.
        """
        claim = _Claim(call.principal.user.id, _checked_key(call), _fingerprint(call, raw_body), call.now)
        self._prune(claim.now)
        running = self._begin(claim)
        if running is not None:
            _check_same(claim, running)
            return self._beside(claim)
        try:
            earlier = repeat_conflicts(partial(self._take, claim))
            return self._first(claim, handle) if earlier is None else earlier
        finally:
            self._end(claim)

    def _begin(self, claim: _Claim) -> str | None:
        """Reserve a key for this thread. Return the fingerprint of another request that has it."""
        with self._lock:
            running = self._running.get(claim.name)
            if running is None:
                self._running[claim.name] = claim.fingerprint
            return running

    def _end(self, claim: _Claim) -> None:
        with self._lock:
            del self._running[claim.name]

    def _beside(self, claim: _Claim) -> Response:
        """Return the answer while another thread deals with the key: it may be repeating a kept one, too."""
        with self._database.read() as connection:
            row = connection.execute(select(idempotency_key).where(claim.row)).mappings().one_or_none()
        if row is None or row["status"] is None or _is_forgotten(row, claim.now):
            raise _in_use()
        return self._replay(claim, row)

    def _is_running_elsewhere(self, row: Any, now: datetime) -> bool:
        """Return whether another server is carrying the request of a row out."""
        is_of_another = self._database.is_shared and row["owner"] != self._owner
        return is_of_another and row["status"] is None and (row["leased_until"] or now) > now

    def _mark_applied(self, transaction: Transaction, claim: _Claim) -> None:
        """Raise 409 when the lease of the key was lost, so that nothing is changed."""
        mine = update(idempotency_key).where(claim.row, _row.owner == self._owner)
        if not transaction.execute(mine.values(applied=True)).rowcount:
            raise _in_use()

    def _first(self, claim: _Claim, handle: Callable[[], Response]) -> Response:
        """Carry out a request, and store its answer when it succeeds."""
        try:
            with self._database.accompanied(lambda transaction: self._mark_applied(transaction, claim)):
                response = handle()
        except BaseException:
            self._release(claim)
            raise
        if response.status_code >= 400:
            self._release(claim)
        else:
            self._keep(claim, response)
        return response

    def _take(self, claim: _Claim) -> Response | None:
        """Reserve the key. Return the answer to give instead when it is used already."""
        values = {
            "fingerprint": claim.fingerprint,
            "applied": False,
            "status": None,
            "body": None,
            "owner": self._owner,
            "leased_until": claim.now + LEASE,
            "created_at": claim.now,
        }
        with self._database.write(rebuildable=Rebuildable.UNANSWERED_REQUESTS) as transaction:
            stored = transaction.execute(select(idempotency_key).where(claim.row)).mappings().one_or_none()
            if stored is not None and _is_forgotten(stored, claim.now):
                stored = None
            if stored is not None and self._is_running_elsewhere(stored, claim.now):
                _check_same(claim, stored["fingerprint"])
                raise _in_use()
            if stored is None or _was_cut_off(stored):
                row = {"user_id": claim.user_id, "key": claim.key, **values}
                upsert(transaction.connection, idempotency_key, row, update=values)
                return None
        return self._replay(claim, stored)

    def _replay(self, claim: _Claim, stored: Any) -> Response:
        _check_same(claim, stored["fingerprint"])
        if stored["body"] is None:
            raise errors.conflict(
                f"The first request with this {HEADER} took effect, but its answer was not kept.",
                "idempotent_answer_lost",
            )
        kept = orjson.loads(self._cipher.decrypt_text(stored["body"]))
        return Response(kept["body"], stored["status"], {**kept["headers"], REPLAYED: "true"})

    def _keep(self, claim: _Claim, response: Response) -> None:
        """Store the answer. A failure of that does not hide that the request took effect."""
        body = bytes(response.body)
        kept = None
        if len(body) <= MAX_ANSWER_BYTES:
            headers = {name: response.headers[name] for name in _KEPT_HEADERS if name in response.headers}
            kept = self._cipher.encrypt_text(
                orjson.dumps({"headers": headers, "body": body.decode()}).decode()
            )
        statement = update(idempotency_key).where(claim.row, _row.owner == self._owner)
        values = {"applied": True, "status": response.status_code, "body": kept}

        def store() -> None:
            with self._database.write() as transaction:
                transaction.execute(statement.values(values))

        try:
            repeat_conflicts(store)
        except DatabaseError as error:
            _log.warning("idempotent_answer_not_kept", error=str(error))

    def _release(self, claim: _Claim) -> None:
        """Release a key whose request changed nothing."""
        try:
            repeat_conflicts(partial(self._remove_unanswered, claim))
        except DatabaseError as error:
            # Its row counts as cut off from now on; the failure of the request itself matters more.
            _log.warning("idempotency_key_not_released", error=str(error))

    def _remove_unanswered(self, claim: _Claim) -> None:
        unanswered = delete(idempotency_key).where(claim.row, _row.owner == self._owner, ~_row.applied)
        with self._database.write(rebuildable=Rebuildable.UNANSWERED_REQUESTS) as transaction:
            transaction.execute(unanswered)

    def _prune(self, now: datetime) -> None:
        with self._lock:
            if self._pruned_at is not None and now < self._pruned_at + PRUNE_EVERY:
                return
            self._pruned_at = now
        with self._database.write(rebuildable=Rebuildable.EXPIRED) as transaction:
            transaction.execute(delete(idempotency_key).where(_row.created_at <= now - KEPT_FOR))


def _is_forgotten(row: Any, now: datetime) -> bool:
    return bool(row["created_at"] <= now - KEPT_FOR)


def _was_cut_off(row: Any) -> bool:
    """Return whether a request that nobody carries out any more ended before it changed anything."""
    return row["status"] is None and not row["applied"]


def _check_same(claim: _Claim, fingerprint: str) -> None:
    """Raise 422 when the key came with another request before."""
    if fingerprint != claim.fingerprint:
        raise errors.unprocessable(
            f"This {HEADER} was used for another request.",
            "idempotency_key_reused",
            HEADER,
        )


def _in_use() -> errors.ApiError:
    return errors.conflict(
        f"The first request with this {HEADER} is still being carried out.",
        "idempotency_key_in_use",
        {"Retry-After": str(RETRY_AFTER_S)},
    )


def _checked_key(call: Call) -> str:
    key = call.request.headers.get(HEADER, "")
    if not _KEY.fullmatch(key):
        raise errors.validation_error(
            f"Must be 1 to {MAX_KEY_CHARACTERS} visible ASCII characters without spaces.", HEADER
        )
    return key


def _fingerprint(call: Call, raw_body: bytes) -> str:
    """Return a digest of what makes two requests the same: method, address, query, body, and the caller's rights."""
    scope = call.request.scope
    digest = hashlib.blake2b(digest_size=32)
    for part in (
        scope["method"].encode(),
        scope["path"].rstrip("/").encode(),
        scope["query_string"],
        raw_body,
        _rights(call.principal),
    ):
        digest.update(b"%d:" % len(part))
        digest.update(part)
    return digest.hexdigest()


def _rights(principal: Principal) -> bytes:
    """Return what decides which answers a caller may have: the key, and all that it may do now."""
    projects, organizations = principal.scoped_projects, principal.scoped_organizations
    return orjson.dumps(
        [
            principal.key_id,
            sorted(principal.scopes),
            None if projects is None else sorted(projects),
            None if organizations is None else sorted(organizations),
            sorted(principal.levels.items()),
            principal.key_expires_at,
        ]
    )
