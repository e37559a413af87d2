"""Compiled programs stay near plain Python. Measured in CPU time, the best of several; bounds are generous.

`benchmarks/hog_programs.py` prints the real ratios (filters 1.3, loops 1.5, recursion 2, a destination 4.5).
"""

import time
from collections.abc import Callable
from typing import Any

import pytest

from hoglab import hog
from hoglab.filters.hog import FILTER

pytestmark = pytest.mark.usefixtures("no_collector")


def cpu_us(run: Callable[[], Any], count: int) -> float:
    best = float("inf")
    for _ in range(7):
        started = time.thread_time()
        for _ in range(count):
            run()
        best = min(best, time.thread_time() - started)
    return best / count * 1e6


def program(source: str) -> Callable[[], Any]:
    compiled = hog.compile_program(source, hog.ANY)

    def run() -> Any:
        step = hog.Execution(compiled, {}, seed=1).start()
        assert isinstance(step, hog.Finished)
        return step.result.value

    return run


EVENT = {"event": "$pageview", "properties": {"$browser": "Chrome", "$current_url": "https://x/pricing"}}


def plain_filter() -> bool:
    p: Any = EVENT["properties"]
    return (
        EVENT["event"] == "$pageview"
        and p.get("$browser") == "Chrome"
        and "pricing" in p["$current_url"].lower()
    )


def plain_fib(n: int) -> int:
    return n if n < 2 else plain_fib(n - 1) + plain_fib(n - 2)


def plain_loop() -> int:
    even = odd = 0
    for i in range(5000):
        if i % 2 == 0:
            even += i
        else:
            odd += 1
    return even + odd


PURCHASES = (
    "event = '$pageview' and properties.$browser = 'Chrome' and properties.$current_url ilike '%pricing%'"
)
FILTER_FUNCTION = hog.compile_expression(PURCHASES, FILTER).function
FIB = "fun fib(n) { if (n < 2) { return n } return fib(n - 1) + fib(n - 2) } return fib(14)"
LOOP = (
    "let even := 0 let odd := 0 for (let i := 0; i < 5000; i := i + 1) {"
    " if (i % 2 = 0) { even := even + i } else { odd := odd + 1 } } return even + odd"
)


@pytest.mark.parametrize(
    ("compiled", "plain", "count", "most"),
    [
        pytest.param(lambda: FILTER_FUNCTION(EVENT), plain_filter, 3000, 3, id="filter"),
        pytest.param(program(FIB), lambda: plain_fib(14), 10, 5, id="recursion"),
        pytest.param(program(LOOP), plain_loop, 10, 5, id="loop"),
    ],
)
def test_ratio_to_plain_python(
    compiled: Callable[[], Any], plain: Callable[[], Any], count: int, most: float
) -> None:
    assert compiled() == plain()
    assert cpu_us(compiled, count) <= most * cpu_us(plain, count)
