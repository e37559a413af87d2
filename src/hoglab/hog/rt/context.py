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
from typing import Final, NoReturn, TypeVar

from hoglab.hog.errors import HogLimit
from hoglab.hog.rt.numbers import format_number
from hoglab.hog.rt.values import HogTuple, Value, live_size

T = TypeVar("T")

LONG: Final = 1_000
"""Length above which texts and containers are charged for by operators."""

CHUNK: Final = 4_000
"""Maximum number of units between two looks at the clock: ticks, and charged work.

A unit is meant to stand for at most a microsecond.
"""

FIRST_CHUNK: Final = 100
"""Ticks before the first look at the clock; quick ones double the number before each further look."""

LOOK_S: Final = 0.004
"""Target duration of the ticks between two looks at the clock; after slower ones the next look comes earlier."""

FREE_UNITS: Final = 4_000
"""Units that an expression may be charged for before it needs a budget of its own: a few milliseconds of work."""

SHORT_GROWTH: Final = 4_096
"""Size in bytes below which values are small, and many in any text."""

TRUNCATED: Final = "... (truncated)"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one execution.

    The defaults are for whole programs; expressions have their own.
    """

    time_s: float = 5.0
    """Computing time, over all turns of a suspended execution together, in seconds."""
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


EXPRESSION_BYTES: Final = 16 * 1024 * 1024
"""Accounted size of live values of expressions.

Expressions may be computed where one operation on a value delays everything else: the size bounds the delay.
"""

EXPRESSION_LIMITS: Final = Limits(time_s=1.0, memory_bytes=EXPRESSION_BYTES)
"""Limits of expressions and templates."""


def memory_text(limit: int, wanted: int) -> str:
    """Return the message of the memory limit."""
    return f"Memory limit of {limit} bytes exceeded. Tried to allocate {wanted} bytes."


class Budget:
    """The measured part of a context.

    `live_roots`, set by the runner, gives the values in the frames of the program; `building` are unfinished
    results of library functions; `tick_bytes` is the allocation of a tick besides the reported ones. With `strict`,
    values that no frame holds yet are accounted for as well: all values made since the last tick count as alive.

    The iterator of ticks refers only to the budget, so that no reference cycle arises.

    Reading a thread's computing time is a system call, which costs more than many programs. A turn that ends before
    the first look at the clock is therefore measured by wall-clock time, which cannot be less.
    """

    __slots__ = (
        "_chunk",
        "_clock",
        "_debt",
        "_drawn",
        "_looked_s",
        "_peak",
        "_recent",
        "_size",
        "_started",
        "_steps",
        "_ticks",
        "_used_s",
        "allocated",
        "building",
        "limits",
        "live_roots",
        "memory_bytes",
        "strict",
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
        self.strict = False
        self._recent = 0
        self._drawn = 0
        self._size = FIRST_CHUNK
        self._chunk: Iterator[None] = repeat(None, 0)
        self._steps = self._ticks = 0
        self._debt = 0
        self._peak = 0
        self._used_s = self._looked_s = used_s
        self._clock: Callable[[], float] = _quick_clock(timer)
        self._started = self._clock()

    def refills(self) -> Iterator[Iterator[None]]:
        """Yield chunks of ticks, with a look at the clock between them."""
        while True:
            room = self.limits.max_steps - self._steps
            if room <= 0:
                self.trip_steps()
            size = min(self._size, room)
            self._chunk = chunk = repeat(None, size)
            self._steps += size
            self._ticks += size
            yield chunk
            if self.tick_bytes:
                self.grow(size * self.tick_bytes)
            before_s = self._looked_s
            self.check_time()
            self._pace(self._looked_s - before_s)

    def _pace(self, took_s: float) -> None:
        """Choose the ticks until the next look at the clock: as many as take about `LOOK_S`."""
        if took_s > LOOK_S:
            self._size = max(1, int(self._size * LOOK_S / took_s))
        elif self._size < CHUNK:
            self._size = min(CHUNK, 2 * self._size)

    def check_time(self) -> None:
        """End the execution if its time is over."""
        if self._clock is not self.timer:
            self.pause()
            self._clock = self.timer
            self._started = self.timer()
        self._looked_s = used_s = self.used_s
        if used_s > self.limits.time_s:
            self.trip_time()

    @property
    def steps(self) -> int:
        """Ticks drawn and work charged so far."""
        return self._steps - length_hint(self._chunk) + self._debt

    def charge(self, units: int) -> None:
        """Account for work done outside loops; one unit is about the work of one turn of a loop."""
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
        """Account for memory about to be allocated; measure the live values when the limit may be reached."""
        self.allocated += n_bytes
        if self.strict and n_bytes > SHORT_GROWTH:
            drawn = self._ticks - length_hint(self._chunk)
            self._recent = n_bytes if drawn != self._drawn else self._recent + n_bytes
            self._drawn = drawn
        if self.allocated > self.memory_bytes:
            self.measure(n_bytes)

    def measure(self, n_bytes: int) -> None:
        """Decide whether `n_bytes` more fit.

        The counter goes back to half of the live size, so that the next measurement follows much further allocation
        and measuring stays cheap.
        """
        live = self.allocated
        if self.live_roots is not None and n_bytes <= self.memory_bytes:
            roots = chain(self.live_roots(), self.building)
            live = max(live_size(roots, self.memory_bytes, self.charge) + n_bytes, self._recent)
        self._peak = max(self._peak, live)
        if live > self.memory_bytes:
            self.trip(memory_text(self.memory_bytes, live), "memory")
        self.allocated = live // 2

    @property
    def memory(self) -> int:
        """Largest known number of bytes in use, an upper estimate while little was allocated."""
        return max(self._peak, self.allocated)

    @property
    def used_s(self) -> float:
        """Computing time used so far, in seconds."""
        return self._used_s + self._clock() - self._started

    def pause(self) -> float:
        """Stop the clock before a suspension; return the time used so far."""
        now = self._clock()
        self._used_s += now - self._started
        self._started = now
        return self._used_s

    def resume(self) -> None:
        """Start the clock again, possibly in another thread."""
        self._clock = _quick_clock(self.timer)
        self._started = self._clock()

    def rewind(self, used_s: float) -> None:
        """Continue from `used_s` seconds: computing that only repeated earlier turns is not charged again."""
        self._used_s = self._looked_s = used_s
        self.resume()

    def trip(self, message: str, kind: str) -> NoReturn:
        """End the execution."""
        self.tripped = HogLimit(message, kind=kind)
        raise self.tripped

    def trip_time(self) -> NoReturn:
        """End the execution because its time is over."""
        seconds = format_number(self.limits.time_s)
        self.trip(f"Execution timed out after {seconds} seconds. Performed {self.steps} ops.", "time")

    def trip_steps(self) -> NoReturn:
        """End the execution because it did too much."""
        self.trip(f"Execution exceeded {self.limits.max_steps} steps", "steps")


def _quick_clock(timer: Callable[[], float]) -> Callable[[], float]:
    """Return the time of a faster clock, which measures a turn until the thread's processor time is read."""
    return time.perf_counter if timer is time.thread_time else timer


class Context:
    """Resources of a running program: its budget, clock, random numbers and printed lines.

    Args:
        limits: limits of the execution.
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
        lines: the printed lines.
        dropped_lines: the number of lines that were not kept.
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
        """Limits of the execution."""
        return self.budget.limits

    @property
    def tripped(self) -> HogLimit | None:
        """Limit that ended the execution."""
        return self.budget.tripped

    @property
    def steps(self) -> int:
        """Ticks drawn and work charged so far."""
        return self.budget.steps

    @property
    def memory(self) -> int:
        """Largest number of bytes accounted for."""
        return self.budget.memory

    def pause(self) -> float:
        """Stop the clock before a suspension; return the computing time used so far, in seconds."""
        return self.budget.pause()

    def resume(self) -> None:
        """Start the next turn: the clock runs again, and the count for `print_lines` begins at 0."""
        self.budget.resume()
        self._line_room = self.limits.print_lines

    # Clock and randomness

    def now(self) -> float:
        """Return Unix time in seconds."""
        return self._clock()

    def random_bytes(self, count: int) -> bytes:
        """Return up to 64 bytes that depend on the seed and on the number of earlier draws."""
        if self._seed is None:
            self._seed = os.urandom(32)
        seed = self._seed
        key = seed if isinstance(seed, bytes) else str(seed).encode()
        if len(key) > hashlib.blake2b.MAX_KEY_SIZE:
            key = hashlib.sha256(key).digest()
        self._draws += 1
        return hashlib.blake2b(self._draws.to_bytes(8, "big"), key=key, digest_size=count).digest()

    def random(self) -> float:
        """Return a number from 0 up to, not including, 1."""
        return (int.from_bytes(self.random_bytes(8), "big") >> 11) * 2.0**-53

    def uuid4(self) -> str:
        """Return a random UUID in lower case."""
        return str(uuid.UUID(bytes=self.random_bytes(16), version=4))

    # Printing

    def print(self, line: str) -> None:
        """Keep a printed line, cut to `print_chars`; drop it when the turn has printed enough."""
        if self._skip_lines > 0:
            self._skip_lines -= 1
        elif self._line_room > 0:
            self._line_room -= 1
            most = self.limits.print_chars - len(TRUNCATED)
            self.lines.append(line[:most] + TRUNCATED if len(line) > most else line)
        else:
            self.dropped_lines += 1


class NeedsBudgetError(BaseException):
    """An expression evaluated without a budget has work to do that must be measured.

    It must be evaluated with a budget. Nothing in the language catches the exception.
    """


class _Unmetered(Context):
    """A context without a budget, for expressions whose number of operations is bounded by their text.

    Operations on long data are charged to a small allowance of the thread, if there is one.
    """

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(timer=_no_time)
        self.ticks = repeat(None)
        self.charge = charge
        self.grow = _one_value_at_most

    def print(self, line: str) -> None:
        """Drop the line: a shared context keeps none."""


def _no_time() -> float:
    return 0.0


_USUAL_MEMORY: Final = Limits().memory_bytes


def _one_value_at_most(n_bytes: int) -> None:
    """Charge for large values, and refuse single ones beyond the usual memory limit."""
    if n_bytes > SHORT_GROWTH:
        if n_bytes > _USUAL_MEMORY:
            raise HogLimit(memory_text(_USUAL_MEMORY, n_bytes), kind="memory")
        charge(n_bytes >> 6)


# The active context


class _Active(threading.local):
    """The charged `context`; without one, `free_units` is the remaining allowance (None: anything).

    `free_units` are set for an evaluation, and taken away after it; see `without_budget`.
    """

    context: Context | None = None
    free_units: int | None = None


active: Final = _Active()


def activate(context: Context | None) -> Context | None:
    """Make a context the one that operators of this thread charge; return the former one.

    Operators have no context among their operands, and mostly need none: they use it only when an operand is long. A
    runner activates its context for each turn and then restores the former one.
    """
    former = active.context
    active.context = context
    return former


def without_budget(compute: Callable[[], T]) -> T:
    """Run a computation that should be little work; return its result. Raises `NeedsBudgetError` if it is not."""
    active.free_units = FREE_UNITS
    try:
        return compute()
    finally:
        active.free_units = None


def free_of_charge(compute: Callable[[], T]) -> T:
    """Run a computation that no evaluation pays for, such as a compilation for all; return its result."""
    context, left = active.context, active.free_units
    active.context = active.free_units = None
    try:
        return compute()
    finally:
        active.context, active.free_units = context, left


def charge(units: int) -> None:
    """Charge the active context; without one, the allowance of the thread, if it has any."""
    context = active.context
    if context is not None:
        context.charge(units)
        return
    left = active.free_units
    if left is not None:
        active.free_units = left - units
        if left < units:
            raise NeedsBudgetError


def grow(n_bytes: int) -> None:
    """Account for memory in the active context, if there is one."""
    context = active.context
    if context is not None:
        context.grow(n_bytes)
    elif n_bytes > SHORT_GROWTH:
        charge(n_bytes >> 6)


UNMETERED: Final[Context] = _Unmetered()
"""Context shared by evaluations that need no budget.

It measures nothing, refuses single huge values, and charges the allowance of the thread.
"""


# What is read

SHORT_TEXT: Final = 256
"""Maximum length of texts that are read without a charge."""

SHORT_CONTAINER: Final = 32
"""Maximum number of parts of containers that are read without a charge."""


def reading_units(value: Value) -> int:
    """Return the cost of reading a value once, without the contents of its parts; 0 for a short one."""
    cls = value.__class__
    if cls is str:
        size = len(value)
        return size >> 6 if size > SHORT_TEXT else 0
    if cls is list or cls is dict or cls is HogTuple:
        size = len(value)
        return size >> 2 if size > SHORT_CONTAINER else 0
    return 0
