"""No outcome of a test depends on how busy the machine is: waits have one patience, and wall time is not asserted."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import httpx
from tests.waiting import PATIENCE_S

TESTS = Path(__file__).parents[1]
CLOCKS = {"monotonic", "perf_counter", "time"}
"""Functions of `time` that go on while others have the processor."""


def test_waits_and_wall_time_are_bounded_by_patience_alone() -> None:
    """Bounds only end what hangs (`tests.waiting.PATIENCE_S`); speed is measured in ``benchmarks``."""
    paths = [path for path in TESTS.rglob("*.py") if "node_modules" not in path.parts]
    assert len(paths) > 500
    faults = {
        f"{path.relative_to(TESTS)}:{line}": text for path in paths for line, text in timed(path.read_text())
    }
    assert faults == {}


def timed(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each short bound on wall time: a number of seconds that a busy machine breaks."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.BinOp(left=left, op=ast.Add(), right=ast.Constant(value=int() | float())) if _is_clock(
                left
            ):
                yield node.lineno, ast.unparse(node)
            case ast.Assert(
                test=ast.Compare(ops=[ast.Lt() | ast.LtE()], left=ast.BinOp(op=ast.Sub()) as taken)
            ):
                if _is_clock(taken.left):
                    yield node.lineno, ast.unparse(node)


def _is_clock(node: ast.expr) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="time"), attr=name)):
            return name in CLOCKS
    return False


def test_requests_without_a_timeout_wait_with_patience() -> None:
    waits = httpx.Client().timeout
    assert {waits.connect, waits.read, waits.write, waits.pool} == {PATIENCE_S}


def test_short_bounds_are_found() -> None:
    source = """
deadline = time.monotonic() + 5
assert time.perf_counter() - began < 3
assert time.thread_time() - began < 3
end = time.monotonic() + PATIENCE_S
assert time.monotonic() < deadline
"""
    assert {line for line, _ in timed(source)} == {2, 3}
