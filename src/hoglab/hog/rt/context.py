"""One execution's context: its budget of time, steps and memory, its clock, randomness and printed lines.

The budget costs next to nothing because loops draw from it instead of counting (hog-perf 3.1): compiled code
writes `for _ in ctx.ticks:` where a Hog program has a loop or enters a function.  Once a limit was reached
the iterator is finished, so a runner must look at `tripped` after every return.

spec: hog-language 8.11, hog-runtime 4.1.
"""

import hashlib
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, repeat
from operator import length_hint
from typing import Any, Final, NoReturn

from hoglab.hog.errors import HogLimit, HogRuntimeError
from hoglab.hog.rt.numbers import format_number
from hoglab.hog.rt.values import HogFunction, Value, live_size

LONG: Final = 1_000
"""Texts and containers longer than this are charged for."""

CHUNK: Final = 10_000
"""Ticks between two looks at the clock."""

TRUNCATED: Final = "... (truncated)"


@dataclass(frozen=True, slots=True)
class Limits:
    """What one execution may use.

    The defaults are those of the language; the presets below those of the server.
    """

    time_s: float = 5.0
    """Computing time, over all turns of a suspended execution together."""
    memory_bytes: int = 64 * 1024 * 1024
    """Accounted size of live values."""
    max_steps: int = 1_000_000_000
    """Loop iterations, function entries and charged work."""
    call_depth: int = 1_000
    """Nested calls of functions of the program."""
    arguments: int = 300
    """Arguments of one call."""
    async_steps: int = 100
    """Calls that suspend the execution."""
    print_lines: int = 1_000
    """Lines kept in one turn; further ones are only counted."""
    print_chars: int = 10_000
    """Length of one printed line; longer ones are cut."""


DESTINATION_LIMITS: Final = Limits(time_s=1.0, async_steps=5, print_lines=24)
"""Bodies of hog functions."""

EXPRESSION_LIMITS: Final = Limits(time_s=1.0)
"""Filters and inputs."""

MASKING_LIMITS: Final = Limits(time_s=0.05)
"""Masking hashes."""


def memory_text(limit: int, wanted: int) -> str:
    """The message of the memory limit."""
    return f"Memory limit of {limit} bytes exceeded. Tried to allocate {wanted} bytes."


class Budget:
    """The measured part of a context.

    `live_roots`, set by the runner, gives the values that the frames of the program hold; `building` are
    results that library functions are still working on; `tick_bytes` is what a tick allocates besides what
    is reported.

    The iterator of ticks refers to this alone, so that no reference cycle arises.

    Reading a thread's computing time is a system call, which costs more than many a program. A turn that ends
    before anyone looks at the clock is therefore measured by the clock on the wall, which cannot be less.
    """

    __slots__ = (
        "_chunk",
        "_clock",
        "_debt",
        "_peak",
        "_started",
        "_steps",
        "_used_s",
        "allocated",
        "building",
        "limits",
        "live_roots",
        "memory_bytes",
        "tick_bytes",
        "timer",
        "tripped",
    )

    def __init__(self, limits: Limits, timer: Callable[[], float], used_s: float) -> None:
        self.limits = limits
        self.timer = timer
        self.tripped: HogLimit | None = None
        self.allocated = 0
        self.memory_bytes = limits.memory_bytes
        self.tick_bytes = 0
        self.building: list[list[Value]] = []
        self.live_roots: Callable[[], Iterable[Value]] | None = None
        self._chunk: Iterator[None] = repeat(None, 0)
        self._steps = 0
        self._debt = 0
        self._peak = 0
        self._used_s = used_s
        self._clock: Callable[[], float] = _quick_clock(timer)
        self._started = self._clock()

    def refills(self) -> Iterator[Iterator[None]]:
        """Chunks of ticks, with a look at the clock between them."""
        while True:
            room = self.limits.max_steps - self._steps
            if room <= 0:
                self.trip_steps()
            size = min(CHUNK, room)
            self._chunk = chunk = repeat(None, size)
            self._steps += size
            yield chunk
            if self.tick_bytes:
                self.grow(size * self.tick_bytes)
            self.check_time()

    def check_time(self) -> None:
        """Ends the execution if its time is over."""
        if self._clock is not self.timer:
            self.pause()
            self._clock = self.timer
            self._started = self.timer()
        if self.used_s > self.limits.time_s:
            self.trip_time()

    @property
    def steps(self) -> int:
        """Ticks drawn and work charged so far."""
        return self._steps - length_hint(self._chunk) + self._debt

    def charge(self, units: int) -> None:
        """Accounts for work done outside loops; one unit is about as much work as one turn of a loop."""
        self._debt += units
        if self._debt >= CHUNK:
            self._steps += self._debt
            self._debt = 0
            if self.tripped is not None:
                raise self.tripped
            if self._steps > self.limits.max_steps:
                self.trip_steps()
            self.check_time()

    def grow(self, n_bytes: int) -> None:
        """Accounts for memory about to be allocated;

        measures the live values when the limit may be reached.
        """
        self.allocated += n_bytes
        if self.allocated > self.memory_bytes:
            self.measure(n_bytes)

    def measure(self, n_bytes: int) -> None:
        """Decides whether `n_bytes` more fit.

        The counter goes back to half of what is alive, so that the next look comes after a good deal of
        further allocation and measuring stays cheap.
        """
        live = self.allocated
        if self.live_roots is not None and n_bytes <= self.memory_bytes:
            roots = chain(self.live_roots(), self.building)
            live = live_size(roots, self.memory_bytes, self.charge) + n_bytes
        self._peak = max(self._peak, live)
        if live > self.memory_bytes:
            self.trip(memory_text(self.memory_bytes, live), "memory")
        self.allocated = live // 2

    @property
    def memory(self) -> int:
        """The most bytes known to have been in use, an upper estimate while little was allocated."""
        return max(self._peak, self.allocated)

    @property
    def used_s(self) -> float:
        """Computing time used so far, in seconds."""
        return self._used_s + self._clock() - self._started

    def pause(self) -> float:
        """Stops the clock before a suspension; returns the time used so far."""
        now = self._clock()
        self._used_s += now - self._started
        self._started = now
        return self._used_s

    def resume(self) -> None:
        """Starts the clock again, possibly in another thread."""
        self._clock = _quick_clock(self.timer)
        self._started = self._clock()

    def rewind(self, used_s: float) -> None:
        """Goes on from `used_s` seconds: computing that only repeated earlier turns is not charged again."""
        self._used_s = used_s
        self.resume()

    def trip(self, message: str, kind: str) -> NoReturn:
        """Ends the execution."""
        self.tripped = HogLimit(message, kind=kind)
        raise self.tripped

    def trip_time(self) -> NoReturn:
        """Ends the execution because its time is over."""
        seconds = format_number(self.limits.time_s)
        self.trip(f"Execution timed out after {seconds} seconds. Performed {self.steps} ops.", "time")

    def trip_steps(self) -> NoReturn:
        """Ends the execution because it did too much."""
        self.trip(f"Execution exceeded {self.limits.max_steps} steps", "steps")


def _quick_clock(timer: Callable[[], float]) -> Callable[[], float]:
    """What to measure a turn by until somebody looks at the clock."""
    return time.perf_counter if timer is time.thread_time else timer


class Context:
    """What a running program draws on.

    Args:
        limits: what the execution may use.
        seed: makes `random` and `uuid4` repeatable; without one they differ from run to run.
        now: Unix time in seconds; a runner that must be able to replay passes one that keeps a journal.
        timer: the clock of the time limit, in seconds of computing time.
        used_s: computing time that earlier turns have used.
        skip_lines: printed lines to drop at the start, because an earlier run of the same program has shown
        them.

    Attributes:
        ticks: the shared iterator that loops and function entries draw from.
        charge: `charge(units)` accounts for work proportional to data.
        grow: `grow(n_bytes)` accounts for memory, before it is allocated.
        lines: what was printed.
        dropped_lines: how many lines were not kept.
    """

    __slots__ = (
        "_clock",
        "_draws",
        "_line_room",
        "_seed",
        "_skip_lines",
        "budget",
        "charge",
        "dropped_lines",
        "grow",
        "lines",
        "ticks",
    )

    def __init__(
        self,
        limits: Limits = Limits(),
        *,
        seed: int | str | bytes | None = None,
        now: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.thread_time,
        used_s: float = 0.0,
        skip_lines: int = 0,
    ) -> None:
        self.budget = budget = Budget(limits, timer, used_s)
        self.ticks: Iterator[None] = chain.from_iterable(budget.refills())
        self.charge: Callable[[int], None] = budget.charge
        self.grow: Callable[[int], None] = budget.grow
        self.lines: list[str] = []
        self.dropped_lines = 0
        self._line_room = limits.print_lines
        self._skip_lines = skip_lines
        self._clock = now
        self._seed: int | str | bytes | None = seed
        self._draws = 0

    # Budget

    @property
    def limits(self) -> Limits:
        """What the execution may use."""
        return self.budget.limits

    @property
    def tripped(self) -> HogLimit | None:
        """The limit that ended the execution."""
        return self.budget.tripped

    @property
    def steps(self) -> int:
        """Ticks drawn and work charged so far."""
        return self.budget.steps

    @property
    def memory(self) -> int:
        """Bytes accounted for, at the highest."""
        return self.budget.memory

    def pause(self) -> float:
        """Stops the clock before a suspension; returns the computing time used so far, in seconds."""
        return self.budget.pause()

    def resume(self) -> None:
        """Starts the next turn: the clock runs again, and `print_lines` counts anew."""
        self.budget.resume()
        self._line_room = self.limits.print_lines

    # Clock and randomness

    def now(self) -> float:
        """Unix time in seconds."""
        return self._clock()

    def random_bytes(self, count: int) -> bytes:
        """Up to 64 bytes that depend on the seed and on how many draws came before."""
        if self._seed is None:
            self._seed = os.urandom(32)
        seed = self._seed
        key = seed if isinstance(seed, bytes) else str(seed).encode()
        if len(key) > hashlib.blake2b.MAX_KEY_SIZE:
            key = hashlib.sha256(key).digest()
        self._draws += 1
        return hashlib.blake2b(self._draws.to_bytes(8, "big"), key=key, digest_size=count).digest()

    def random(self) -> float:
        """A number from 0 up to, not including, 1."""
        return (int.from_bytes(self.random_bytes(8), "big") >> 11) * 2.0**-53

    def uuid4(self) -> str:
        """A random UUID in lower case."""
        return str(uuid.UUID(bytes=self.random_bytes(16), version=4))

    # Printing

    def print(self, line: str) -> None:
        """Keeps a printed line, cut to `print_chars`; drops it when the turn has printed enough."""
        if self._skip_lines > 0:
            self._skip_lines -= 1
        elif self._line_room > 0:
            self._line_room -= 1
            most = self.limits.print_chars - len(TRUNCATED)
            self.lines.append(line[:most] + TRUNCATED if len(line) > most else line)
        else:
            self.dropped_lines += 1

    # Calls

    def call(self, function: Value, args: list[Value] | tuple[Value, ...]) -> Value:
        """Calls a function value.

        A closure gets null for missing arguments and refuses surplus ones; a library function checks its
        arity.  spec: hog-language 5.7, 10.1.

        Raises:
            HogRuntimeError: not a function, or a wrong number of arguments.
        """
        return self.callback(function, len(args))(*args)

    def callback(self, function: Value, count: int) -> Callable[..., Value]:
        """The Python callable that calls a function value with exactly `count` arguments.

        Raises as `call`.
        """
        if function.__class__ is not HogFunction:
            raise HogRuntimeError(f"Invalid closure: {_shown(function)}")
        if count > self.limits.arguments:
            raise HogRuntimeError("Too many arguments")
        call: Callable[..., Value] = function.call
        if function.kind != "local":
            check_arity(function.name, count, function.arity, function.max_arity)
            return call
        missing = function.arity - count
        if missing == 0:
            return call
        if missing < 0:
            raise HogRuntimeError(f"Too many arguments. Passed {count}, expected {function.arity}")
        padding = (None,) * missing
        return lambda *args: call(*args, *padding)


def check_arity(name: str, count: int, least: int, most: int | None) -> None:
    """Refuses a call of a library function with too few or too many arguments.  spec: hog-language 10.1."""
    if count < least:
        raise HogRuntimeError(f"Function {name} requires at least {least} arguments")
    if most is not None and count > most:
        raise HogRuntimeError(f"Function {name} requires at most {most} arguments")


def _shown(value: Value) -> str:
    from hoglab.hog.rt.printing import repr_value

    return repr_value(value)[:100]


class _Unmetered(Context):
    """A context without a budget, for expressions whose work is bounded by their text."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(timer=_no_time)
        self.ticks = repeat(None)
        self.charge = _free
        self.grow = _one_value_at_most

    def print(self, line: str) -> None:
        """Drops the line: what is shared keeps nothing."""


def _no_time() -> float:
    return 0.0


def _free(units: Any) -> None:
    """Charges nothing."""


_USUAL_MEMORY: Final = Limits().memory_bytes


def _one_value_at_most(n_bytes: int) -> None:
    """Refuses single values beyond the usual memory limit."""
    if n_bytes > _USUAL_MEMORY:
        raise HogLimit(memory_text(_USUAL_MEMORY, n_bytes), kind="memory")


UNMETERED: Final[Context] = _Unmetered()
"""Shared by evaluations that need no budget: it measures nothing and only refuses single huge values."""


# The active context


class _Active(threading.local):
    context: Context | None = None


_active = _Active()


def activate(context: Context | None) -> Context | None:
    """Makes a context the one that operators of this thread charge; returns the one before.

    Operators have no place for a context among their operands, and most of their uses need none: they look
    for it only when an operand is long.  A runner activates its context for each turn and puts the former
    one back.
    """
    former = _active.context
    _active.context = context
    return former


def charge(units: int) -> None:
    """Charges the active context, if there is one."""
    context = _active.context
    if context is not None:
        context.charge(units)


def grow(n_bytes: int) -> None:
    """Accounts for memory in the active context, if there is one."""
    context = _active.context
    if context is not None:
        context.grow(n_bytes)
