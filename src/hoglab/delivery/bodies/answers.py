"""Answers of a process of bodies: sent several together, because each message wakes up the server."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING, Any

from hoglab.delivery.bodies.protocol import frame

if TYPE_CHECKING:
    import socket

KEPT_S = 0.002
"""Maximum time in seconds that an answer waits for others, even while work continues.

A single operation of the runtime that takes longer is not interrupted.
"""
KEPT_BYTES = 1 << 18
"""Size in bytes of the waiting answers above which they are sent."""


class Answers:
    """Collects answers. Used by the main thread, which gets the signals.

    `begin` work on a request, `add` the answer to it, `send` at the end of a message.
    """

    def __init__(self, channel: socket.socket, done: int) -> None:
        """Create the collector.

        ``done`` is a pipe that takes a byte for each answer. It shows the server how far a process came that died
        before it sent them.
        """
        self._channel = channel
        self._done = done
        self._kept = bytearray()
        self._since = 0.0
        self._at_work = False
        signal.signal(signal.SIGALRM, self._ring)

    def begin(self) -> None:
        """Begin work on a request, which may take long."""
        self._at_work = True
        if self._kept and self._is_late():
            self.send()

    def add(self, answer: Any) -> None:
        """Keep an answer, to be sent soon."""
        self._at_work = False
        text = frame(answer)
        with contextlib.suppress(BlockingIOError):
            os.write(self._done, b".")
        if not self._kept:
            self._since = time.monotonic()
            signal.setitimer(signal.ITIMER_REAL, KEPT_S)
        self._kept += text
        if len(self._kept) > KEPT_BYTES or self._is_late():
            self.send()

    def send(self) -> None:
        """Send the waiting answers. Raises `ConnectionError` when the server has gone."""
        at_work, self._at_work = self._at_work, False
        if self._kept:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self._channel.sendall(self._kept)
            self._kept.clear()
        self._at_work = at_work

    def _is_late(self) -> bool:
        return time.monotonic() - self._since >= KEPT_S

    def _ring(self, *_: object) -> None:
        """Send the answers when the current work takes long; called by the timer.

        Without current work, the code that changes the answers looks at the time next.
        """
        if not self._at_work:
            return
        try:
            self.send()
        except OSError:
            os._exit(0)  # as at the end of the program: nobody reads the answers any more
