"""Running compiled programs: turns, suspension, journal, and errors with their place in the source.

A program that calls a function of the host stops there (`Suspended`) and goes on when the host answers. While the
process lives, that is a Python generator. With its journal another process can reach the same point: it runs
the program again with the answers so far, the same seed and the same readings of the clock (spec: hog-runtime 4.6).
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
import weakref
from dataclasses import dataclass
from itertools import count
from types import GeneratorType
from typing import TYPE_CHECKING, Any, NoReturn

from hoglab.hog.backend_python import FILE_NAME
from hoglab.hog.errors import HogLimit, HogRuntimeError, HogThrow, Position
from hoglab.hog.parser.recursion import ensure_stack
from hoglab.hog.rt.context import FREE_UNITS, Context, Limits, NeedsBudgetError, activate, active
from hoglab.hog.rt.conversion import from_json, to_json
from hoglab.hog.rt.json_text import stringify
from hoglab.hog.rt.values import ENDED, Value
from hoglab.hog.tracebacks import ErrorInfo, explain

if TYPE_CHECKING:
    import types
    from collections.abc import Callable, Generator, Iterator, Mapping

    from hoglab.hog.program import Program

JOURNAL_VERSION = 1

REPEAT_FACTOR = 9
"""Multiple of the time limit that repeating earlier turns may take on top of it; it is not charged."""

_OWN_LOCALS = frozenset({"g", "c", "b", "charge", "_"})


@dataclass(frozen=True, slots=True)
class Result:
    """Outcome of an execution, over all of its turns.

    `value` is a Hog value (`to_json` makes plain data of it), null after an error. `duration_us` is computing time,
    without waiting; `memory` an upper estimate of the bytes in use; `printed` the lines printed since the
    execution was started or replayed; `dropped_lines` the number of further lines. `returned` is false when a program
    came to its end, or to a `return`, without a value.
    """

    value: Value
    printed: tuple[str, ...]
    dropped_lines: int
    steps: int
    duration_us: int
    memory: int
    error: ErrorInfo | None
    returned: bool

    @property
    def json(self) -> Any:
        """The value as plain JSON data. Raises `HogRuntimeError` when it is too deep or too large."""
        return to_json(self.value)


@dataclass(frozen=True, slots=True)
class Finished:
    """The execution is over."""

    result: Result


@dataclass(frozen=True, slots=True)
class Suspended:
    """The program waits for the host to perform `name(*args)`; `args` are plain JSON data."""

    name: str
    args: list[Any]


class _Suspend(BaseException):
    """An exception that leaves a program in replay mode at a call without an answer."""

    def __init__(self, name: str, args: list[Value]) -> None:
        super().__init__()
        self.name = name
        self.arguments = args


@dataclass(frozen=True, slots=True)
class _Answered:
    """A call and the host's answer to it, in this process."""

    call: Suspended
    answer: Any

    def record(self) -> dict[str, Any]:
        return {**_call_record(self.call), "result": to_json(from_json(self.answer))}


class _Clock:
    """Clock of a program: readings are recorded, and repeated when the program is repeated."""

    __slots__ = ("at", "read", "times")

    def __init__(self, read: Callable[[], float]) -> None:
        self.read = read
        self.times: list[float] = []
        self.at = 0

    def now(self) -> float:
        at = self.at
        self.at = at + 1
        if at == len(self.times):
            self.times.append(self.read())
        return self.times[at]


class ExecutionContext(Context):
    """The context of an execution. Host functions that need more than their arguments find it by `owner`."""

    __slots__ = ("_owner",)

    def __init__(self, owner: Execution, limits: Limits, **options: Any) -> None:
        super().__init__(limits, **options)
        self._owner = weakref.ref(owner)  # the execution holds the context: a strong one would make a cycle

    @property
    def owner(self) -> Execution:
        """Execution that this context belongs to."""
        execution = self._owner()
        if execution is None:
            raise HogRuntimeError("The execution is over")
        return execution

    def answer(self, name: str, args: list[Value]) -> Value:
        """Return the recorded answer to the next call; suspend the program when there is none (in replay mode)."""
        return self.owner.next_answer(name, args)


class Execution:
    """One execution of a program.

    `globals` are Hog values (use `from_json` for foreign data that may hold marker objects); the program cannot
    change them. `seed` determines its random numbers; without one they differ from run to run. `clock` gives Unix
    time in seconds for `now()`. With a `journal`, `start` repeats the turns that it records.

    Use: `start()`, then `resume(answer)` as long as the outcome is `Suspended`. Executions are not thread-safe, but
    each turn may happen in another thread.
    """

    def __init__(
        self,
        program: Program,
        variables: Mapping[str, Value] | None = None,
        *,
        seed: int | str | None = None,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.thread_time,
        limits: Limits | None = None,
        journal: Mapping[str, Any] | None = None,
        renew: bool = False,
    ) -> None:
        self._function = program.function  # generated here, so that the program's time does not pay for it
        self.program = program
        self.globals: dict[str, Value] = dict(variables or {})
        self.limits = limits or program.env.limits
        self.clock = _Clock(clock)
        self.timer = timer
        self.seed: int | str = _fresh_seed() if seed is None else seed
        self.calls: list[_Answered | dict[str, Any]] = []
        self.pending: Suspended | None = None
        self.outcome: Finished | Suspended | None = None
        self.printed = 0
        self.used_s = 0.0
        self._answered = 0
        self._generator: Generator[tuple[str, list[Value]], Value, Value] | None = None
        self._recorded_pending: dict[str, Any] | None = None
        self._lines: list[str] = []
        self._skipped = self._dropped = 0
        self._context: ExecutionContext | None = None
        self._answered_times = 0
        self._renews = renew
        if journal is not None:
            self._load(journal)

    @property
    def context(self) -> Context:
        """Context of the current run; its time starts at its first use."""
        if self._context is None:
            self._context = self._new_context()
        return self._context

    # --- turns

    def start(self) -> Finished | Suspended:
        """Run until the program ends or needs the host (with a journal: beyond the recorded calls)."""
        if self.outcome is not None:
            raise ValueError("the execution was started before")
        return self._turn(None)

    def resume(self, answer: Any) -> Finished | Suspended:
        """Continue after the pending call; `answer` is plain JSON data or a Hog value, not to be changed later.

        Raises `HogRuntimeError` if the answer is nested too deeply, `TypeError` if it is no JSON data.
        """
        if self.pending is None:
            raise ValueError("the execution does not wait for an answer")
        value = from_json(answer)
        self.calls.append(_Answered(self.pending, answer))
        self._answered_times = len(self.clock.times)
        self.pending = None
        if self._generator is None:
            self._restart()
        else:
            self.context.resume()
        return self._turn(value)

    def fail(self, message: str) -> Finished:
        """End an execution that waits for something the host cannot do."""
        self.close()
        self.pending = None
        self.outcome = outcome = self._finish(self.context, None, ErrorInfo("runtime", message))
        return outcome

    @property
    def printed_lines(self) -> list[str]:
        """Lines printed since the execution was started or replayed."""
        return self._lines if self._context is None else self._lines + self._context.lines

    def journal(self) -> dict[str, Any]:
        """Return the JSON data with which another process can reach this point.

        The source of the program and the globals are not in it; they must be the same again.
        """
        return {
            "version": JOURNAL_VERSION,
            "program": self.program.fingerprint,
            "seed": self.seed,
            "calls": [call.record() if isinstance(call, _Answered) else call for call in self.calls],
            "pending": None if self.pending is None else _call_record(self.pending),
            "now": list(self.clock.times),
            "now_answered": self._answered_times,
            "printed": self.printed,
            "used_s": self.used_s,
        }

    def close(self) -> None:
        """Drop the suspended program; the journal stays."""
        if self._generator is not None:
            self._generator.close()
            self._generator = None

    def _load(self, journal: Mapping[str, Any]) -> None:
        if journal.get("version") != JOURNAL_VERSION:
            raise HogRuntimeError(f"Unknown journal version {journal.get('version')!r}")
        if journal["program"] != self.program.fingerprint:
            raise HogRuntimeError("The journal belongs to another program")
        self.seed = journal["seed"]
        self.calls = list(journal["calls"])
        self._answered_times = journal.get("now_answered", len(journal["now"]))
        self.clock.times = list(journal["now"])
        if self._renews:
            del self.clock.times[self._answered_times :]
        self.printed = journal["printed"]
        self.used_s = journal["used_s"]
        self._recorded_pending = journal["pending"]

    def _new_context(self) -> ExecutionContext:
        limits, generated = self.limits, self.program.generated
        repeats = self.calls or self._recorded_pending
        self.clock.at = 0
        context = ExecutionContext(
            self,
            limits,
            seed=self.seed,
            now=self.clock.now,
            timer=self.timer,
            used_s=-REPEAT_FACTOR * limits.time_s if repeats else self.used_s,
            skip_lines=self.printed,
        )
        budget = context.budget
        budget.tick_bytes = generated.tick_bytes
        budget.live_roots = _live_values
        self._skipped = self.printed
        self._answered = 0
        return context

    def _restart(self) -> None:
        """Prepare to run the program again from its start (replay mode)."""
        self._lines = self.printed_lines
        self._dropped += self.context.dropped_lines
        self._context = None

    def _turn(self, value: Value) -> Finished | Suspended:
        context = self.context
        former = activate(context)
        outcome: Finished | Suspended
        try:
            outcome = self._advance(context, value)
        except BaseException as error:
            info = explain(error, self.program)
            if info is None:
                raise
            outcome = self._finish(context, None, info)
        finally:
            activate(former)
        self.outcome = outcome
        return outcome

    def _advance(self, context: Context, value: Value) -> Finished | Suspended:
        generator = self._generator
        if generator is None:
            try:
                result = enter(self.program, self._function, self.globals, context)
            except _Suspend as call:
                return self._suspend(context, call.name, call.arguments)
            if result.__class__ is not GeneratorType:
                return self._end(context, result)
            self._generator = generator = result
            value = None
        try:
            name, args = generator.send(value)
            while self._answered < len(self.calls):
                name, args = generator.send(self.next_answer(name, args))
        except StopIteration as end:
            return self._end(context, end.value)
        return self._suspend(context, name, args)

    def next_answer(self, name: str, args: list[Value]) -> Value:
        """Return the recorded answer to a call that the program repeats; suspend the program when there is none.

        Raises `HogRuntimeError` when the program makes another call than the first time.
        """
        at = self._answered
        if at >= len(self.calls):
            raise _Suspend(name, args)
        recorded = self.calls[at]
        if isinstance(recorded, _Answered):
            _check_same(_call_record(recorded.call), name, args)
            answer = recorded.answer
        else:
            _check_same(recorded, name, args)
            answer = recorded["result"]
        self._answered = at + 1
        if self._answered == len(self.calls) and self._recorded_pending is None:
            self.context.budget.rewind(self.used_s)
        return from_json(answer)

    def _suspend(self, context: Context, name: str, args: list[Value]) -> Suspended:
        if context.tripped is not None:
            raise context.tripped
        if self._recorded_pending is not None:
            if not self._renews:
                _check_same(self._recorded_pending, name, args)
            self._recorded_pending = None
            context.budget.rewind(self.used_s)
        if len(self.calls) >= self.limits.async_steps:
            message = f"Exceeded maximum number of async steps: {self.limits.async_steps}"
            raise HogLimit(message, kind="async_steps")
        self.pending = pending = Suspended(name, [to_json(arg) for arg in args])
        self._pause(context)
        self._answered = len(self.calls) + 1
        return pending

    def _end(self, context: Context, value: Value) -> Finished:
        if context.tripped is not None:
            raise context.tripped
        missed = self.calls[self._answered :]
        if self._recorded_pending is not None:
            if self._renews:  # what time it is may decide that nothing is left to be asked for
                context.budget.rewind(self.used_s)
            else:
                missed.append(self._recorded_pending)
        if missed:
            first = missed[0].call.name if isinstance(missed[0], _Answered) else missed[0]["call"]
            raise HogRuntimeError(f"The repeated run ended where the first one called {first}()")
        return self._finish(context, value, None)

    def _finish(self, context: Context, value: Value, error: ErrorInfo | None) -> Finished:
        self._pause(context)
        self._lines = self.printed_lines
        self._generator = self._context = None
        result = Result(
            value=None if value is ENDED else value,
            printed=tuple(self._lines),
            dropped_lines=self._dropped + context.dropped_lines,
            steps=context.steps,
            duration_us=round(self.used_s * 1e6),
            memory=context.memory,
            error=error,
            returned=value is not ENDED,
        )
        return Finished(result)

    def _pause(self, context: Context) -> None:
        """Add up times and lines at the end of a turn."""
        self.used_s = context.pause()
        if context.lines or context.dropped_lines:
            shown = self._skipped + len(context.lines) + context.dropped_lines
            self.printed = max(self.printed, shown)


def enter(
    program: Program, function: Callable[..., Any], variables: dict[str, Value], context: Context
) -> Any:
    """Call the generated function; programs that may wait for the host return a generator."""
    if program.generated.bounded:
        return function(variables, context)
    ensure_stack()
    return function(variables, context, context.ticks, context.charge)


_PROCESS_SEED = os.urandom(16).hex()
_SEEDS = count()


def _fresh_seed() -> str:
    """Return a seed that no other execution has; asking the system each time would cost more than a filter."""
    return f"{_PROCESS_SEED}:{os.getpid()}:{next(_SEEDS)}"


def _call_record(call: Suspended) -> dict[str, Any]:
    return {"call": call.name, "args": _arguments_hash(call.args)}


def _arguments_hash(args: list[Value]) -> str:
    return hashlib.sha256(stringify(to_json(args)).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _check_same(recorded: Mapping[str, Any], name: str, args: list[Value]) -> None:
    """Refuse a repetition whose calls differ from the first run."""
    if recorded["call"] != name:
        raise HogRuntimeError(
            f"The repeated run called {name}() where the first one called {recorded['call']}()"
        )
    if recorded["args"] != _arguments_hash(args):
        raise HogRuntimeError(f"The repeated run called {name}() with other arguments than the first one")


def _live_values() -> Iterator[Value]:
    """Yield the variables of all Hog functions that are being executed."""
    frame: types.FrameType | None = sys._getframe(1)  # noqa: SLF001 - documented, and there is no other way
    while frame is not None:
        if frame.f_code.co_filename == FILE_NAME:
            for name, value in frame.f_locals.items():
                if name not in _OWN_LOCALS:
                    yield value
        frame = frame.f_back


# --- short ways


def evaluate(program: Program, variables: dict[str, Value]) -> Value:
    """Evaluate an expression, template or inputs; for filters, this is the fast way.

    Texts without loops are tried without a budget first: mostly there is nothing to measure. Raises `HogRuntimeError`
    (with its position), `HogThrow` or `HogLimit`. Programs that wait for the host cannot be run this way.
    """
    if program.generated.bounded:
        active.free_units = FREE_UNITS
        try:
            return program.function(variables)
        except NeedsBudgetError:
            pass
        except BaseException as error:
            _raise(error, program)
        finally:
            active.free_units = None
    execution = Execution(program, variables)
    context = execution.context
    context.budget.strict = True
    former = activate(context)
    try:
        return _at_once(program, variables, context)
    except BaseException as error:
        _raise(error, program)
    finally:
        activate(former)


def _at_once(program: Program, variables: dict[str, Value], context: Context) -> Value:
    try:
        value = enter(program, program.function, variables, context)
    except _Suspend as call:
        raise HogRuntimeError(f"Unknown async function '{call.name}'") from None
    if context.tripped is not None:
        raise context.tripped
    if value.__class__ is GeneratorType:
        raise HogRuntimeError("This text waits for the host and cannot be evaluated at once")
    return None if value is ENDED else value


def _raise(error: BaseException, program: Program) -> NoReturn:
    """Raise the error again, with its position, as one of the classes of `hoglab.hog.errors`."""
    info = explain(error, program)
    if info is None:
        raise error
    if isinstance(error, (HogRuntimeError, HogThrow, HogLimit)):
        known: HogRuntimeError | HogThrow | HogLimit = error
    elif info.kind == "limit":
        known = HogLimit(info.message, kind="depth" if isinstance(error, RecursionError) else "memory")
    else:
        known = HogRuntimeError(info.message)
    if info.line is not None and info.column is not None:
        known.position = Position(info.line, info.column, 0)
    known.path = info.path
    raise known from None
