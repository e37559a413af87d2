"""How fast compiled Hog is: eight programs beside the same programs written in plain Python.

a  a filter of three conditions          e  recursive fib(20)
b  a filter of nine conditions, one regex f  a text grown 10,000 times
c  a destination with one fetch          g  arrayMap and arrayFilter with closures
d  a Mandelbrot set, 24 x 16             h  a loop of 10,000 with two accumulators

Each figure includes setting up one execution with its context and budget. c is given twice: as the generated function
with a fetch that answers at once, and as an execution that is suspended, writes down the call and is resumed. The
plain versions have no limits, no coercion and no null safety. Ratios of one run can be compared, times of two cannot.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from functools import partial
from timeit import Timer
from typing import Any

import orjson

from hoglab import hog
from hoglab.hog.rt.context import Context

EVENT: dict[str, Any] = {
    "event": "$pageview",
    "properties": {
        "$browser": "Chrome",
        "$current_url": "https://example.com/pricing?plan=pro",
        "plan": "pro",
        "n": 5,
    },
}
FILTER_A = (
    "event = '$pageview' and properties.$browser = 'Chrome' and properties.$current_url ilike '%pricing%'"
)
FILTER_B = r"""
(event = 'signup' and properties.plan = 'free' and properties.n > 3)
or (event = '$autocapture' and properties.$browser = 'Firefox' and properties.$current_url =~ 'example\\.org')
or (event = '$pageview' and properties.plan = 'pro' and properties.$current_url =~ 'example\\.com/pric(ing|es)')
"""
DESTINATION = """
let body := {'event': event.event, 'distinct_id': event.distinct_id, 'email': person.properties.email, 'properties': {}}
for (let key, value in event.properties) {
  if (substring(key, 1, 1) != '$') { body.properties[key] := value }
}
for (let key, value in inputs.extra) { body[key] := value }
let headers := {'Content-Type': 'application/json'}
let res := fetch(inputs.url, {'method': 'POST', 'headers': headers, 'body': jsonStringify(body)})
if (res.status >= 400) { throw Error(f'bad status {res.status}') }
"""
DESTINATION_GLOBALS: dict[str, Any] = {
    "event": {
        "event": "$pageview",
        "distinct_id": "u1",
        "properties": {**{f"$p{i}": f"v{i}" for i in range(13)}, **{f"p{i}": f"v{i}" for i in range(12)}},
    },
    "person": {"properties": {"email": "ada@example.com"}},
    "inputs": {"url": "https://example.com/hook", "extra": {"source": "hoglab", "version": "2"}},
}
MANDELBROT = """
let total := 0
for (let row := 0; row < 16; row := row + 1) {
  for (let col := 0; col < 24; col := col + 1) {
    let re := col / 24 * 3.5 - 2.5
    let im := row / 16 * 2 - 1
    let x := 0.0 let y := 0.0 let n := 0
    while (x * x + y * y <= 4 and n < 50) {
      let next := x * x - y * y + re
      y := 2 * x * y + im
      x := next
      n := n + 1
    }
    total := total + n
  }
}
return total
"""
FIB = "fun fib(n) { if (n < 2) { return n } return fib(n - 1) + fib(n - 2) } return fib(20)"
TEXT = "let s := '' for (let i := 0; i < 10000; i := i + 1) { s := concat(s, 'x', toString(i)) } return length(s)"
CLOSURES = "let k := 3 return arrayFilter(x -> x > 50, arrayMap(x -> x + k, xs))"
LOOP = """
let even := 0 let odd := 0
for (let i := 0; i < 10000; i := i + 1) { if (i % 2 = 0) { even := even + i } else { odd := odd + 1 } }
return even + odd
"""
NUMBERS = list(range(100))
ANSWER = {"status": 200, "body": "ok"}
REGEXES = (re.compile(r"example\.org"), re.compile(r"example\.com/pric(ing|es)"))


# --- the same in plain Python


def plain_a(g: dict[str, Any]) -> bool:
    p = g["properties"]
    return (
        g["event"] == "$pageview" and p.get("$browser") == "Chrome" and "pricing" in p["$current_url"].lower()
    )


def plain_b(g: dict[str, Any]) -> bool:
    event, p = g["event"], g["properties"]
    url = p.get("$current_url")
    return bool(
        (event == "signup" and p.get("plan") == "free" and p.get("n") > 3)
        or (event == "$autocapture" and p.get("$browser") == "Firefox" and REGEXES[0].search(url))
        or (event == "$pageview" and p.get("plan") == "pro" and REGEXES[1].search(url))
    )


def plain_c(g: dict[str, Any], fetch: Callable[..., Any]) -> None:
    event = g["event"]
    own: dict[str, Any] = {}
    body = {
        "event": event["event"],
        "distinct_id": event["distinct_id"],
        "email": g["person"]["properties"]["email"],
        "properties": own,
    }
    for key, value in event["properties"].items():
        if key[:1] != "$":
            own[key] = value  # noqa: PERF403 - line by line what the Hog program does
    for key, value in g["inputs"]["extra"].items():
        body[key] = value  # noqa: PERF403
    headers = {"Content-Type": "application/json"}
    answer = fetch(
        g["inputs"]["url"], {"method": "POST", "headers": headers, "body": orjson.dumps(body).decode()}
    )
    if answer["status"] >= 400:
        raise RuntimeError(f"bad status {answer['status']}")


def plain_d() -> int:
    total = 0
    for row in range(16):
        for col in range(24):
            re_, im = col / 24 * 3.5 - 2.5, row / 16 * 2 - 1
            x = y = 0.0
            n = 0
            while x * x + y * y <= 4 and n < 50:
                x, y = x * x - y * y + re_, 2 * x * y + im
                n += 1
            total += n
    return total


def plain_fib(n: int) -> int:
    return n if n < 2 else plain_fib(n - 1) + plain_fib(n - 2)


def plain_f() -> int:
    s = ""
    for i in range(10000):
        s = s + "x" + str(i)
    return len(s)


def plain_g(xs: list[int]) -> list[int]:
    k = 3
    return [x for x in [x + k for x in xs] if x > 50]


def plain_h() -> int:
    even = odd = 0
    for i in range(10000):
        if i % 2 == 0:
            even += i
        else:
            odd += 1
    return even + odd


# --- measuring


def program(source: str, variables: dict[str, Any] | None = None) -> Callable[[], Any]:
    compiled = hog.compile_program(source, hog.ANY)

    def run() -> Any:
        step = hog.Execution(compiled, variables, seed=1).start()
        assert isinstance(step, hog.Finished)
        assert step.result.error is None, step.result.error
        return step.result.value

    return run


def destination() -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The destination as its generated function, and as an execution."""
    env = hog.DESTINATION.with_functions(hog.host_function("fetch"))
    compiled = hog.compile_program(DESTINATION, env)
    function = compiled.function

    def at_once() -> None:
        context = Context(env.limits, seed=1)
        generator = function(DESTINATION_GLOBALS, context, context.ticks, context.charge)
        generator.send(None)
        try:
            generator.send(ANSWER)
        except StopIteration:
            return

    def execution() -> None:
        execution = hog.Execution(compiled, DESTINATION_GLOBALS, seed=1)
        execution.start()
        step = execution.resume(ANSWER)
        assert isinstance(step, hog.Finished)
        assert step.result.error is None, step.result.error

    return at_once, execution


def pairs() -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """Compiled and plain version of every program; both give the same value."""
    a, b = (hog.compile_expression(text, hog.FILTER).function for text in (FILTER_A, FILTER_B))
    at_once, execution = destination()
    plain = partial(plain_c, DESTINATION_GLOBALS, lambda *_args: ANSWER)
    return {
        "a filter": (lambda: a(EVENT), lambda: plain_a(EVENT)),
        "b filter, regex": (lambda: b(EVENT), lambda: plain_b(EVENT)),
        "c destination": (at_once, plain),
        "c as an execution": (execution, plain),
        "d mandelbrot": (program(MANDELBROT), plain_d),
        "e fib(20)": (program(FIB), lambda: plain_fib(20)),
        "f text": (program(TEXT), plain_f),
        "g closures": (program(CLOSURES, {"xs": NUMBERS}), lambda: plain_g(NUMBERS)),
        "h loop": (program(LOOP), plain_h),
    }


def per_call_us(run: Callable[[], Any], budget_s: float) -> float:
    """The best time of one call in microseconds, in batches that fill about a fifth of the budget each."""
    timer = Timer(run)
    once = max(timer.timeit(1), 1e-7)
    count = max(1, int(budget_s / 5 / once))
    return min(timer.repeat(5, count)) / count * 1e6


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="short runs")
    budget_s = 0.01 if parser.parse_args().smoke else 0.5
    print(f"{'program':<20}{'compiled us':>12}{'plain us':>12}{'ratio':>8}")
    for name, (compiled, plain) in pairs().items():
        assert compiled() == plain(), name
        hog_us, python_us = per_call_us(compiled, budget_s), per_call_us(plain, budget_s)
        print(f"{name:<20}{hog_us:>12.2f}{python_us:>12.2f}{hog_us / python_us:>8.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
