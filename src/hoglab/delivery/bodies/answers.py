"""Answers of a process of bodies: several together, for each message wakes up the server."""

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
"""Maximum time that an answer waits for others, even while work continues; a single operation of the runtime
that takes longer is not broken off."""
KEPT_BYTES = 1 << 18
"""Answers that are longer together are sent."""


class Answers:
    """Used by the main thread, which gets the signals.

    `begin` work on a request, `add` the answer to it, `send` at the end of a message.
    """

    def __init__(self, channel: socket.socket, done: int) -> None:
        """``done``: a pipe that takes a byte for each answer.

        By it the server knows how far a process came that dies before it has sent them.
        """
        self._channel = channel
        self._done = done
        self._kept = bytearray()
        self._since = 0.0
        self._at_work = False
        signal.signal(signal.SIGALRM, self._ring)

    def begin(self) -> None:
        """A request is worked on from now on, which may take long."""
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
        """Send what is kept. Raises `ConnectionError` when the server has gone."""
        at_work, self._at_work = self._at_work, False
        if self._kept:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self._channel.sendall(self._kept)
            self._kept.clear()
        self._at_work = at_work

    def _is_late(self) -> bool:
        return time.monotonic() - self._since >= KEPT_S

    def _ring(self, *_: object) -> None:
        """Handler of the timer: sends the answers when the work at hand takes long.

        Without any at hand, whoever changes the answers just now looks at the time next.
        """
        if not self._at_work:
            return
        try:
            self.send()
        except OSError:
            os._exit(0)  # as at the end of the program: nobody is there who would want to know
