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
"""Texts and containers longer than this are charged for by operators."""

CHUNK: Final = 4_000
"""Most units between two looks at the clock: ticks, and work that is charged for. A unit is meant to stand for at most
a microsecond."""

FIRST_CHUNK: Final = 100
"""Ticks before the first look; as long as they are quick, twice as many before each further one."""

LOOK_S: Final = 0.004
"""Target duration of the ticks between two looks at the clock; when they take longer, the next look comes earlier."""

FREE_UNITS: Final = 4_000
"""Units that an expression may be charged for before it needs a budget of its own: a few milliseconds of work."""

SHORT_GROWTH: Final = 4_096
"""Values of fewer bytes are many in any text, and small."""

TRUNCATED: Final = "... (truncated)"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one execution.

    The defaults are those of whole programs; expressions have their own, below.
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


EXPRESSION_BYTES: Final = 16 * 1024 * 1024
"""Accounted size of live values of expressions, which may be computed where one operation on a value holds up
everything else: this bounds how long."""

EXPRESSION_LIMITS: Final = Limits(time_s=1.0, memory_bytes=EXPRESSION_BYTES)
"""Expressions and templates."""


def memory_text(limit: int, wanted: int) -> str:
    """Return the message of the memory limit."""
    return f"Memory limit of {limit} bytes exceeded. Tried to allocate {wanted} bytes."


class Budget:
    """The measured part of a context.

    `live_roots`, set by the runner, gives the values that the frames of the program hold; `building` are
    results that library functions are still working on; `tick_bytes` is what a tick allocates besides what
    is reported. With `strict`, values that no frame holds yet are accounted for as well: all that was made since the
    last tick counts as alive.

    The iterator of ticks refers to this alone, so that no reference cycle arises.

    Reading a thread's computing time is a system call, which costs more than many a program. A turn that ends
    before anyone looks at the clock is therefore measured by the clock on the wall, which cannot be less.
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
        """Have the clock looked at by time: after as many ticks as take about `LOOK_S`."""
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
        """Account for work done outside loops; one unit is about as much work as one turn of a loop."""
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
        """Account for memory about to be allocated; measures the live values when the limit may be reached."""
        self.allocated += n_bytes
        if self.strict and n_bytes > SHORT_GROWTH:
            drawn = self._ticks - length_hint(self._chunk)
            self._recent = n_bytes if drawn != self._drawn else self._recent + n_bytes
            self._drawn = drawn
        if self.allocated > self.memory_bytes:
            self.measure(n_bytes)

    def measure(self, n_bytes: int) -> None:
        """Decide whether `n_bytes` more fit.

        The counter goes back to half of what is alive, so that the next look comes after a good deal of
        further allocation and measuring stays cheap.
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
        """The most bytes known to have been in use, an upper estimate while little was allocated."""
        return max(self._peak, self.allocated)

    @property
    def used_s(self) -> float:
        """Computing time used so far, in seconds."""
        return self._used_s + self._clock() - self._started

    def pause(self) -> float:
        """Stop the clock before a suspension; returns the time used so far."""
        now = self._clock()
        self._used_s += now - self._started
        self._started = now
        return self._used_s

    def resume(self) -> None:
        """Start the clock again, possibly in another thread."""
        self._clock = _quick_clock(self.timer)
        self._started = self._clock()

    def rewind(self, used_s: float) -> None:
        """Go on from `used_s` seconds: computing that only repeated earlier turns is not charged again."""
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
    """Clock that measures a turn until the exact one is read: a faster one in place of the thread's processor time."""
    return time.perf_counter if timer is time.thread_time else timer


class Context:
    """Resources of a running program: its budget, clock, random numbers and printed lines.

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
        """Limits of the execution."""
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
        """Stop the clock before a suspension; returns the computing time used so far, in seconds."""
        return self.budget.pause()

    def resume(self) -> None:
        """Start the next turn: the clock runs again, and `print_lines` counts anew."""
        self.budget.resume()
        self._line_room = self.limits.print_lines

    # Clock and randomness

    def now(self) -> float:
        """Return Unix time in seconds."""
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
        """Return a number from 0 up to, not including, 1."""
        return (int.from_bytes(self.random_bytes(8), "big") >> 11) * 2.0**-53

    def uuid4(self) -> str:
        """Return a random UUID in lower case."""
        return str(uuid.UUID(bytes=self.random_bytes(16), version=4))

    # Printing

    def print(self, line: str) -> None:
        """Keep a printed line, cut to `print_chars`; drops it when the turn has printed enough."""
        if self._skip_lines > 0:
            self._skip_lines -= 1
        elif self._line_room > 0:
            self._line_room -= 1
            most = self.limits.print_chars - len(TRUNCATED)
            self.lines.append(line[:most] + TRUNCATED if len(line) > most else line)
        else:
            self.dropped_lines += 1


class NeedsBudgetError(BaseException):
    """An expression that is evaluated without a budget has work to do that must be measured.

    It is to be evaluated with one. Nothing in the language catches it.
    """


class _Unmetered(Context):
    """A context without a budget, for expressions whose number of operations is bounded by their text.

    What operations on long data cost is taken from a small allowance of the thread, if there is one.
    """

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(timer=_no_time)
        self.ticks = repeat(None)
        self.charge = charge
        self.grow = _one_value_at_most

    def print(self, line: str) -> None:
        """Drop the line: what is shared keeps nothing."""


def _no_time() -> float:
    return 0.0


_USUAL_MEMORY: Final = Limits().memory_bytes


def _one_value_at_most(n_bytes: int) -> None:
    """Charge for large values, and refuses single ones beyond the usual memory limit."""
    if n_bytes > SHORT_GROWTH:
        if n_bytes > _USUAL_MEMORY:
            raise HogLimit(memory_text(_USUAL_MEMORY, n_bytes), kind="memory")
        charge(n_bytes >> 6)


# The active context


class _Active(threading.local):
    """`context` is the one that is charged; `free_units`, without one, what may be charged yet (None: anything).

    `free_units` are set for an evaluation, and taken away after it; see `without_budget`.
    """

    context: Context | None = None
    free_units: int | None = None


active: Final = _Active()


def activate(context: Context | None) -> Context | None:
    """Make a context the one that operators of this thread charge; returns the one before.

    Operators have no place for a context among their operands, and most of their uses need none: they look
    for it only when an operand is long.  A runner activates its context for each turn and puts the former
    one back.
    """
    former = active.context
    active.context = context
    return former


def without_budget(compute: Callable[[], T]) -> T:
    """Return the result of a computation that should be little work. Raises `NeedsBudgetError` if it is not."""
    active.free_units = FREE_UNITS
    try:
        return compute()
    finally:
        active.free_units = None


def free_of_charge(compute: Callable[[], T]) -> T:
    """Return the result of a computation that no evaluation pays for, such as a compilation that others profit from."""
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
"""Shared by evaluations that need no budget: it measures nothing, refuses single huge values, and takes from the
allowance of the thread."""


# What is read

SHORT_TEXT: Final = 256
"""Texts up to this length are read for nothing."""

SHORT_CONTAINER: Final = 32
"""Containers of up to so many parts are read for nothing."""


def reading_units(value: Value) -> int:
    """Return the cost of reading a value once, without its parts' contents; 0 for a short one."""
    cls = value.__class__
    if cls is str:
        size = len(value)
        return size >> 6 if size > SHORT_TEXT else 0
    if cls is list or cls is dict or cls is HogTuple:
        size = len(value)
        return size >> 2 if size > SHORT_CONTAINER else 0
    return 0
