"""Connections: their maximum number, and which ones are cut when there are nearly too many.

The server itself only knows one limit for all. This module adds limits by looking at the sockets from outside: how
long a client may leave sent data unread, how much of it the system buffers, and which share of all connections one
address may have when they are scarce.
"""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import structlog

MAX_CONNECTIONS = 8192
"""Connections served at the same time; more wait in the backlog."""
CROWDED_PART = 0.75
"""Part of all connections in use above which each is closed after its next answer."""
ADDRESS_SHARE = 0.5
"""Share of one address in all connections while they are crowded: those of it that are silent longest are cut."""
FILES_PART = 0.75
"""Share of connections in the files that the process may open: deliveries and databases need some, too."""
UNREAD_TIMEOUT_S = 60
"""Time for which a client may leave sent data unread before its connection is cut."""
SEND_BUFFER_BYTES = 256 * 1024
"""Size of the system's buffer for a response that a client has not read yet."""
LOOK_EVERY_S = 1.0
LOOK_PART = 0.01
"""Share of processor time that counting connections may take while they are crowded."""

_OPEN_FILES = "/dev/fd"
_LAST_DATA_RECEIVED = slice(52, 56)  # of `struct tcp_info`: milliseconds

_log = structlog.get_logger("hoglab.http")


@dataclass(slots=True)
class Connections:
    """The connections of one server. ``first``: the lowest file descriptor that may be one.

    ``spare``: how many more may be kept before they are counted again, from ``look_at`` on (monotonic seconds).
    """

    most: int
    first: int
    port: int
    spare: int = 0
    look_at: float = 0.0

    @classmethod
    @contextmanager
    def on(cls, port: int, *, most: int | None = None) -> Iterator[Connections]:
        """Provide the connections of a server that is about to listen on a port.

        ``most`` replaces the maximum that the limit on open files suggests.
        """
        first = os.open(os.devnull, os.O_RDONLY)
        try:
            files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            reasonable = min(MAX_CONNECTIONS, max(1, int((files - first) * FILES_PART)))
            yield cls(reasonable if most is None else most, first, port)
        finally:
            os.close(first)

    def are_crowded(self) -> bool:
        """Return whether too many are open to keep the calling connection for further requests.

        Open files are counted, which takes a while where there are thousands. So every call counts as one more
        connection until the next look, and while connections are crowded looks take a small part of the time. Both
        err on one side: never are more kept than `CROWDED_PART`, and the rest is for waiting clients.
        """
        self.spare -= 1
        if self.spare < 0 and time.monotonic() >= self.look_at:
            began = time.thread_time()  # not the clock, by which a look is dear when others had the processor
            self.spare = int(self.most * CROWDED_PART) - self._open()
            self.look_at = time.monotonic() + (time.thread_time() - began) / LOOK_PART
        return self.spare < 0

    def _open(self) -> int:
        try:
            return sum(number > self.first for number in _open_files())
        except OSError:  # no file is left for looking
            return self.most

    def bound_buffers(self) -> None:
        """Make the system cut connections whose clients do not read. Connections inherit the listener's options."""
        for _, listener in _sockets():
            with suppress(OSError):
                if self._is_ours(listener) and _accepts(listener):
                    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
                    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_TIMEOUT_S * 1000)

    async def watch(self) -> None:
        """Keep one address from having most connections, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            if self.are_crowded():
                cut = await asyncio.to_thread(self.cut_excess)
                for address, count in cut.items():
                    _log.warning("connections_cut", client=address, count=count)

    def cut_excess(self) -> dict[str, int]:
        """Cut the connections of each address beyond its share. Return how many they were."""
        by_address: dict[str, list[tuple[int, int, Any]]] = {}
        for number, sock in _sockets():
            with suppress(OSError):
                if self._is_ours(sock) and not _accepts(sock):
                    peer = sock.getpeername()
                    by_address.setdefault(peer[0], []).append((_silent_ms(sock), number, peer))
        cut: dict[str, int] = {}
        for address, theirs in by_address.items():
            excess = len(theirs) - int(self.most * ADDRESS_SHARE)
            for _, number, peer in sorted(theirs, reverse=True)[: max(0, excess)]:
                with _socket(number) as again, suppress(OSError):
                    if again is not None and again.getpeername() == peer:
                        again.shutdown(socket.SHUT_RDWR)  # its owner finds it ended, and closes it
                        cut[address] = cut.get(address, 0) + 1
        return cut

    def _is_ours(self, sock: socket.socket) -> bool:
        name = sock.getsockname()
        return isinstance(name, tuple) and name[1] == self.port


def _open_files() -> list[int]:
    return [int(name) for name in os.listdir(_OPEN_FILES)]  # noqa: PTH208 - makes no thousands of paths


@contextmanager
def _socket(number: int) -> Iterator[socket.socket | None]:
    """Provide the socket with a number, None for other files.

    It is neither copied nor closed: when any copy of a file is closed, the process loses its locks on that file, and
    other processes would take a database for one that nobody has open.
    """
    try:
        sock = socket.socket(fileno=number)
    except OSError:
        yield None
        return
    try:
        yield sock
    finally:
        sock.detach()


def _sockets() -> Iterator[tuple[int, socket.socket]]:
    """Yield every open socket with its number, while it is looked at."""
    numbers: list[int] = []
    with suppress(OSError):  # no file is left for looking
        numbers = _open_files()
    for number in numbers:
        with _socket(number) as sock:
            if sock is not None:
                yield number, sock


def _accepts(sock: socket.socket) -> bool:
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) != 0


def _silent_ms(sock: socket.socket) -> int:
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 56)
    return int.from_bytes(info[_LAST_DATA_RECEIVED], "little")
