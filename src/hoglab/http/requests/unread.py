"""The memory for answers that clients have not read yet: one bound for the whole server, with parts and shares of it.

An answer is in memory until its client has read it. A client may be slow, and one that does not read at all is noticed
only after a while: a few hundred of them would hold as many copies of a long list. When there is no room for another
answer, the ones that were begun first are cut off, among those that count for the same limit: an answer that is read
is gone soon. No answer is refused, for its work is done.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prometheus_client import Counter as Counting
from prometheus_client import Gauge

from hoglab.http.requests.budget import ADDRESS_SHARE, OWNER_SHARE, STRANGERS_PART, owner_of
from hoglab.http.requests.client_ip import nearest_address
from hoglab.http.requests.deadlines import Deadlines

if TYPE_CHECKING:
    from starlette.types import Scope

ANSWERS_BYTES = 256 * 1024 * 1024
"""Bytes of all long answers that are being sent."""

_STRANGERS = "strangers"
_HELD = Gauge("hoglab_http_answers_bytes", "Bytes of long answers that clients have not read yet.")
_CUT = Counting("hoglab_http_answers_cut", "Long answers cut off because others needed their memory.")


@dataclass(slots=True, eq=False)
class _Sending:
    """An answer under way, and the accounts that it counts for: all, and its owner, or strangers and its address."""

    body: bytes | memoryview
    task: asyncio.Task[Any]
    accounts: tuple[str, ...]


class UnreadAnswers:
    """The long answers that one server is sending. For one event loop.

    A body that several clients get at the same time counts once for each account: it is in memory once.
    """

    def __init__(self, total_bytes: int = ANSWERS_BYTES) -> None:
        self._total_bytes = total_bytes
        self._sending: dict[_Sending, None] = {}  # in the order in which they began
        self._held: Counter[str] = Counter()
        self._uses: Counter[tuple[str, int]] = Counter()

    @property
    def held(self) -> int:
        """Bytes of all answers under way."""
        return self._held[""]

    @contextmanager
    def kept(self, scope: Scope, body: bytes | memoryview) -> Iterator[None]:
        """Count a body while the current task sends it, under `Deadlines.within`, by which it may be cut off."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - requests are served in tasks
        sending = _Sending(body, task, _accounts(scope))
        self._add(sending)
        try:
            for account in sending.accounts:
                self._make_room(account, sending)
            yield
        finally:
            self._remove(sending)

    def _make_room(self, account: str, sending: _Sending) -> None:
        """Cut off answers of an account, the oldest first, until the account is within its limit."""
        limit = self._limit(account)
        for other in list(self._sending):
            if self._held[account] <= limit:
                return
            if other is not sending and account in other.accounts:
                self._remove(other)
                _CUT.inc()
                Deadlines.here().expire(other.task)

    def _limit(self, account: str) -> int:
        kind = account.partition(":")[0]
        parts = {"": 1.0, _STRANGERS: STRANGERS_PART, "address": ADDRESS_SHARE}
        return int(self._total_bytes * parts.get(kind, OWNER_SHARE))

    def _add(self, sending: _Sending) -> None:
        self._sending[sending] = None
        for account in sending.accounts:
            use = (account, id(sending.body))
            if not self._uses[use]:
                self._book(account, len(sending.body))
            self._uses[use] += 1

    def _remove(self, sending: _Sending) -> None:
        if sending not in self._sending:
            return  # it was cut off
        del self._sending[sending]
        for account in sending.accounts:
            use = (account, id(sending.body))
            self._uses[use] -= 1
            if not self._uses[use]:
                del self._uses[use]
                self._book(account, -len(sending.body))

    def _book(self, account: str, size: int) -> None:
        self._held[account] += size
        if not self._held[account]:
            del self._held[account]
        if not account:
            _HELD.inc(size)


def _accounts(scope: Scope) -> tuple[str, ...]:
    owner = owner_of(scope)
    return ("", owner) if owner is not None else ("", _STRANGERS, f"address:{nearest_address(scope)}")
