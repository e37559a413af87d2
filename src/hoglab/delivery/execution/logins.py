"""Log-ins of functions: the answer to a request that logs in is kept for all runs of the function until it is refused.

A request logs in where its option ``login`` is true. A service that locks out who logs in too often gets one log-in for
many events. It refuses one that is over with status 401 (RFC 9110, 15.5.2); the run then begins again with a new one.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeGuard

import orjson

from hoglab.delivery.outbound import FetchFailure, FetchRequest, FetchResponse

MAX_LOGINS = 1_000
"""Log-ins that are kept; the one that was not used for longest is forgotten first."""
MISTRUST_S = 60.0
"""Seconds for which no new log-in is made after one that was refused as soon as it was made: it is not its age."""
REFUSED = 401
"""Status of a request whose log-in is not valid, or not any more."""


@dataclass(slots=True)
class _Login:
    answer: FetchResponse
    mistrusted_until_s: float = 0.0


class Logins:
    """The log-ins that are kept in this process, in memory only.

    `answer` is for the event loop that requests are sent on, the rest for any thread.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, _Login] = OrderedDict()
        self._under_way: dict[str, asyncio.Task[FetchResponse | FetchFailure]] = {}

    async def answer(
        self,
        function_id: str,
        request: FetchRequest,
        send: Callable[[], Awaitable[FetchResponse | FetchFailure]],
    ) -> FetchResponse | FetchFailure:
        """Return the answer to a request of a function.

        For one that logs in it is the kept one, or else that which ``send`` gets, once for all who wait for it.
        """
        if not request.is_login:
            return await send()
        key = key_of_login(function_id, request)
        with self._lock:
            login = self._kept.get(key)
            if login is not None:
                self._kept.move_to_end(key)
                return login.answer
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.ensure_future(self._made(key, send))
            task.add_done_callback(lambda _task: self._under_way.pop(key, None))
        return await asyncio.shield(task)

    async def _made(
        self, key: str, send: Callable[[], Awaitable[FetchResponse | FetchFailure]]
    ) -> FetchResponse | FetchFailure:
        answer = await send()
        if is_login(answer):
            with self._lock:
                self._kept[key] = _Login(answer)
                if len(self._kept) > MAX_LOGINS:
                    self._kept.popitem(last=False)
        return answer

    def renew(self, key: str, mark: str, *, is_new: bool) -> bool:
        """Drop a log-in that was refused, and return whether a run should begin again with a new one.

        ``mark``: that of the refused one. ``is_new``: the run has made it after another one had been refused, so that
        a third would be refused, too.
        """
        with self._lock:
            login = self._kept.get(key)
            if login is None or mark_of(login.answer) != mark:
                return not is_new
            if is_new:
                login.mistrusted_until_s = self._clock() + MISTRUST_S
            if self._clock() < login.mistrusted_until_s:
                return False
            del self._kept[key]
            return True


def is_login(answer: object) -> TypeGuard[FetchResponse]:
    """Return whether an answer says that somebody is logged in."""
    return isinstance(answer, FetchResponse) and 200 <= answer.status < 300


def key_of_login(function_id: str, request: FetchRequest) -> str:
    """Return the key of a log-in: different for each function, and for all that it is logged in with."""
    content = [request.url, request.method, dict(request.headers), request.body]
    return f"{function_id}/{hashlib.sha256(orjson.dumps(content)).hexdigest()}"


def mark_of(answer: FetchResponse) -> str:
    """Return a text by which a log-in is recognised and that gives nothing of it away."""
    return hashlib.sha256(orjson.dumps(answer.body)).hexdigest()[:32]
