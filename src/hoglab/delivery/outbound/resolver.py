"""Looking up names: in threads of their own, which functions share.

A name server that does not answer occupies a thread for as long as the system's resolver waits for it (ten seconds
and more), even after the caller has given up. So each name has one look-up at a time, and functions share the
threads as they share the places of a destination.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from typing import Any

from hoglab.delivery.outbound.addresses import literal_address
from hoglab.fairness.fair_semaphore import FairSemaphore, Holder

LOOK_UPS = 48
"""Maximum number of names that are looked up at a time."""
SLOW_S = 1.0
"""Time in seconds after which a look-up makes room for another, up to `SLOW_LOOK_UPS`."""
SLOW_LOOK_UPS = 96

Found = list[Any]
"""Addresses, in the form of `socket.getaddrinfo`."""


def look_up(host: str, port: int) -> Found:
    """Return the addresses of a name, by the system's resolver.

    Raises `socket.gaierror`, and `ValueError` for an invalid name.
    """
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)


class NameResolver:
    """Resolver of names. Created and used on one event loop; close it there."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._under_way: dict[tuple[str, int], asyncio.Task[Found]] = {}
        self._threads = FairSemaphore(LOOK_UPS, most=SLOW_LOOK_UPS, slow_s=SLOW_S)

    async def resolve(self, host: str, port: int, holder: Holder) -> Found:
        """Return the addresses of a host. Raises the errors of `look_up`."""
        if literal_address(host) is not None:
            return look_up(host, port)  # no look-up is needed
        key = (host, port)
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.create_task(self._look_up(host, port, holder))
            task.add_done_callback(lambda done: self._over(key, done))
        return await asyncio.shield(task)

    def close(self) -> None:
        """Stop waiting for look-ups."""
        for task in list(self._under_way.values()):
            task.cancel()
        self._threads.close()

    def _over(self, key: tuple[str, int], done: asyncio.Task[Found]) -> None:
        self._under_way.pop(key, None)
        if not done.cancelled():
            done.exception()  # the callers may have given up

    async def _look_up(self, host: str, port: int, holder: Holder) -> Found:
        place = await self._threads.enter("", holder)
        try:
            return await self._in_thread(host, port)
        finally:
            self._threads.leave(place)

    def _in_thread(self, host: str, port: int) -> asyncio.Future[Found]:
        """Return a thread that dies with the process: a thread of a pool would not, and a stop would wait for it."""
        future: asyncio.Future[Found] = self._loop.create_future()

        def work() -> None:
            result: Found | Exception
            try:
                result = look_up(host, port)
            except Exception as error:
                result = error
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(tell, result)

        def tell(result: Found | Exception) -> None:
            if future.done():
                return
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)

        threading.Thread(target=work, name="delivery-resolve", daemon=True).start()
        return future
