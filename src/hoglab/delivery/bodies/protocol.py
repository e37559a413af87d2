"""Protocol between the server and the processes that run bodies.

A frame is its length in four bytes, then MessagePack. The process first sends an empty `TurnOutcome` when it is
ready. Then the server sends frames with lists of `Request`, and the process answers each request with a frame of
its own, in order; several may arrive together (`answers`). Beside that, a pipe takes a byte for each finished
request of a run. So when a process dies, the first unfinished request is the one that killed it.

JSON is not decoded on the way by a side that does not need it.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

import msgspec
import orjson

from hoglab.functions.body_run import BodyRun

PROGRAMS = 1_000
"""Maximum number of programs that a process keeps. Both sides forget the oldest one when there are more."""

_LENGTH = struct.Struct("<I")
_CHUNK = 1 << 18


@dataclass(frozen=True, slots=True)
class RunLimits:
    """Limits of one run, as a process counts them.

    ``time_s``, ``calls`` and ``program_bytes`` are its own; ``grace_s`` is the computing time beyond them after which
    the process ends.
    """

    grace_s: float
    time_s: float
    calls: int
    program_bytes: int

    @classmethod
    def read(cls, texts: Sequence[str]) -> RunLimits:
        """Return the limits in arguments of a command, in the order of the fields."""
        grace_s, time_s, calls, program_bytes = texts
        return cls(float(grace_s), float(time_s), int(calls), int(program_bytes))

    def texts(self) -> list[str]:
        """Return the arguments that `read` understands."""
        return [str(value) for value in astuple(self)]


class Begin(msgspec.Struct, tag=0, array_like=True):
    """Run a program from its start; with a ``journal`` to the call that it records, and with ``answer`` beyond it.

    ``source`` comes with the first run of a program in this process; ``globals`` and ``more`` (which wins) are JSON
    objects; ``now`` is the Unix time that the program's clock starts from.
    """

    number: int
    program: int
    source: str | None
    run_id: str
    globals: bytes
    more: bytes
    now: float
    journal: bytes | None = None
    answer: bytes | None = None


class Resume(msgspec.Struct, tag=1, array_like=True):
    """Continue the run that waits under this number. ``answer`` is JSON."""

    number: int
    answer: bytes
    now: float


class Forget(msgspec.Struct, tag=2, array_like=True):
    """Runs that will not be continued here. Not answered."""

    numbers: list[int]


class Transform(msgspec.Struct, tag=3, array_like=True):
    """Run a transformation on some events, one after the other. Answered with `Transformed`.

    ``globals`` is a JSON object for each event, ``shared`` one with their common globals; ``seed`` begins the seed
    of each run, to which the event's uuid is added.
    """

    program: int
    source: str | None
    seed: str
    shared: bytes
    globals: list[bytes]


Request = Begin | Resume | Forget | Transform


class TurnOutcome(msgspec.Struct, array_like=True):
    """State that a run has reached: the call it waits for (``call``, None when it is over) or ``error``.

    ``lines`` were printed since the last outcome; ``dropped`` and ``used_s`` count from the start of the run.
    ``suspended``: the process waits for `Resume`. ``answered``: calls that were answered so far. ``unknown``: the
    process has no run of that number (any more). ``refused``: the source cannot be compiled, and why. ``crashed``
    is set by the pool: the processes that ran it died. ``retry_after_s``: the error asks for another attempt, after so
    many seconds at least, negative for as long as after a failed request.
    """

    call: str | None = None
    args: bytes = b"[]"
    value: bytes | None = None
    error: str | None = None
    lines: list[str] = []
    dropped: int = 0
    loop_found: bool = False
    captured: bytes | None = None
    journal: bytes | None = None
    answered: int = 0
    used_s: float = 0.0
    steps: int = 0
    memory: int = 0
    suspended: bool = False
    unknown: bool = False
    refused: str | None = None
    crashed: bool = False
    retry_after_s: float | None = None


class Transformed(msgspec.Struct, array_like=True):
    """Results of a transformation for the first events of a request, at least one."""

    runs: list[BodyRun]


_encoder = msgspec.msgpack.Encoder()
_requests = msgspec.msgpack.Decoder(list[Request])
_outcome = msgspec.msgpack.Decoder(TurnOutcome)
_transformed = msgspec.msgpack.Decoder(Transformed)


def send(channel: socket.socket, message: Any) -> None:
    """Write one frame."""
    channel.sendall(frame(message))


def frame(message: Any) -> bytes:
    """Return a message as it is sent."""
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


class Frames:
    """Reads frames from a socket. Raises `EOFError` when the other side has closed it."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._rest = bytearray()
        self._at = 0  # what is before it was read

    def requests(self) -> list[Request]:
        return _requests.decode(self._next())

    def outcome(self) -> TurnOutcome:
        return _outcome.decode(self._next())

    def transformed(self) -> Transformed:
        return _transformed.decode(self._next())

    def _next(self) -> memoryview:
        """Return the next frame, to be decoded before another one is asked for."""
        self._fill(_LENGTH.size)
        [length] = _LENGTH.unpack_from(self._rest, self._at)
        self._fill(_LENGTH.size + length)
        begin = self._at + _LENGTH.size
        self._at = begin + length
        return memoryview(self._rest)[begin : self._at]

    def _fill(self, size: int) -> None:
        while len(self._rest) - self._at < size:
            more = self._channel.recv(_CHUNK)
            if not more:
                raise EOFError
            if self._at:
                del self._rest[: self._at]
                self._at = 0
            self._rest += more


def json_of(value: Any) -> bytes:
    """Return plain JSON data (`hoglab.hog.rt.conversion.to_json`) as text."""
    return orjson.dumps(value)
