"""How fast compiled Hog is: eight programs beside the official virtual machine in node, and beside plain Python.

a  a filter of three conditions          e  recursive fib(20)
b  a filter of nine conditions, one regex f  a text grown 10,000 times
c  a destination with one fetch          g  arrayMap and arrayFilter with closures
d  a Mandelbrot set, 24 x 16             h  a loop of 10,000 with two accumulators

Each figure includes setting up one execution with its context and budget. c is an execution that is suspended, keeps
its journal and is resumed; "c at once" is the generated function with a fetch that answers immediately. The official
machine runs our bytecode, keeps its state in memory and matches patterns with node's own RegExp. The plain versions
have no limits, no coercion and no null safety. All times are computing time, so that other work on the machine counts
little. Ratios of one run can be compared, times of two cannot.

    python benchmarks/hog_programs.py [--smoke]
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from timeit import Timer
from typing import Any

import orjson

from hoglab import hog
from hoglab.filters.hog import FILTER
from hoglab.functions.environments import DESTINATION_LIMITS
from hoglab.hog.rt.context import Context

HERE = Path(__file__).parent
NODE_PACKAGES = HERE.parent / "tests" / "node" / "node_modules"
ROUNDS = 3

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


# --- the programs


@dataclass(frozen=True)
class Case:
    """One program: `compiled` and `plain` run it once; `official` is what the official machine is told."""

    name: str
    compiled: Callable[[], Any]
    plain: Callable[[], Any]
    official: dict[str, Any]


def filter_case(name: str, text: str, plain: Callable[[], Any]) -> Case:
    program = hog.compile_expression(text, FILTER)
    function = program.function
    return Case(name, lambda: function(EVENT), plain, {"bytecode": program.bytecode, "globals": EVENT})


def program_case(
    name: str, source: str, plain: Callable[[], Any], variables: dict[str, Any] | None = None
) -> Case:
    program = hog.compile_program(source, hog.ANY)

    def compiled() -> Any:
        step = hog.Execution(program, variables, seed=1).start()
        assert isinstance(step, hog.Finished)
        assert step.result.error is None, step.result.error
        return step.result.value

    return Case(name, compiled, plain, {"bytecode": program.bytecode, "globals": variables or {}})


DESTINATION_ENV = hog.ANY.with_limits(DESTINATION_LIMITS).with_functions(hog.host_function("fetch"))


def destination_cases() -> list[Case]:
    """The destination as an execution, and as its generated function."""
    program = hog.compile_program(DESTINATION, DESTINATION_ENV)
    function = program.function

    def execution() -> None:
        execution = hog.Execution(program, DESTINATION_GLOBALS, seed=1)
        execution.start()
        step = execution.resume(ANSWER)
        assert isinstance(step, hog.Finished)
        assert step.result.error is None, step.result.error

    def at_once() -> None:
        context = Context(DESTINATION_ENV.limits, seed=1)
        generator = function(DESTINATION_GLOBALS, context, context.ticks, context.charge)
        generator.send(None)
        try:
            generator.send(ANSWER)
        except StopIteration:
            return

    plain = partial(plain_c, DESTINATION_GLOBALS, lambda *_args: ANSWER)
    official = {"bytecode": program.bytecode, "globals": DESTINATION_GLOBALS, "answer": ANSWER}
    return [
        Case("c destination", execution, plain, {**official, "waits": True}),
        Case("c at once", at_once, plain, {**official, "waits": False}),
    ]


def cases() -> list[Case]:
    return [
        filter_case("a filter", FILTER_A, lambda: plain_a(EVENT)),
        filter_case("b filter, regex", FILTER_B, lambda: plain_b(EVENT)),
        *destination_cases(),
        program_case("d mandelbrot", MANDELBROT, plain_d),
        program_case("e fib(20)", FIB, lambda: plain_fib(20)),
        program_case("f text", TEXT, plain_f),
        program_case("g closures", CLOSURES, lambda: plain_g(NUMBERS), {"xs": NUMBERS}),
        program_case("h loop", LOOP, plain_h),
    ]


# --- measuring


class OfficialMachine:
    """The node process with the official virtual machine."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            ["node", str(HERE / "hog_official.mjs"), str(NODE_PACKAGES)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @staticmethod
    def missing() -> str | None:
        """Why there is no official machine here; None when there is one."""
        if shutil.which("node") is None:
            return "node is not installed"
        if not (NODE_PACKAGES / "@posthog" / "hogvm").is_dir():
            return "@posthog/hogvm is not installed (make setup installs it)"
        return None

    def time(self, case: Case, seconds: float) -> float:
        """Microseconds of one run; its result must be ours."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"program": case.official, "seconds": seconds}) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert answer["result"] == case.plain(), case.name
        return float(answer["us"])

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(30)


def per_call_us(run: Callable[[], Any], seconds: float) -> float:
    """The best time of one call in microseconds, in five batches that fill the given time together."""
    timer = Timer(run, timer=time.process_time)
    once = max(timer.timeit(1), 1e-7)
    calls = max(1, int(seconds / 5 / once))
    return min(timer.repeat(5, calls)) / calls * 1e6


def compile_ms(compile_text: Callable[[str, hog.Environment], hog.Program], text: str, times: int) -> float:
    """The median time of compiling a text that was not compiled before."""
    env = FILTER if compile_text is hog.compile_expression else DESTINATION_ENV
    taken: list[float] = []
    for number in count():
        if number >= times:
            return statistics.median(taken) * 1e3
        started = time.thread_time()
        compile_text(f"{text} -- {number}", env).function  # noqa: B018 - generates the code
        taken.append(time.thread_time() - started)
    raise AssertionError


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="one short round")
    smoke = parser.parse_args().smoke
    seconds, rounds = (0.01, 1) if smoke else (0.3, ROUNDS)
    missing = OfficialMachine.missing()
    machine = None if missing else OfficialMachine()
    print(
        f"{'us, median':<17}{'official':>12}{'hoglab':>12}{'plain':>12}{'official/hoglab':>18}{'hoglab/plain':>14}"
    )
    faster = []
    for case in cases():
        assert case.compiled() == case.plain(), case.name
        times = [
            (
                math.nan if machine is None else machine.time(case, seconds),
                per_call_us(case.compiled, seconds),
                per_call_us(case.plain, seconds),
            )
            for _ in range(rounds)
        ]
        official, ours, plain = map(statistics.median, zip(*times, strict=True))
        if case.name != "c at once":
            faster.append(official / ours)
        print(
            f"{case.name:<17}{official:>12,.2f}{ours:>12,.2f}{plain:>12,.2f}"
            f"{official / ours:>18.1f}{ours / plain:>14.1f}"
        )
    if machine is None:
        print(f"No comparison with the official machine: {missing}.")
    else:
        machine.close()
        mean = statistics.geometric_mean(faster)
        print(f"geometric mean of the eight (goal 12): {mean:.1f}; least (goal 5): {min(faster):.1f}")
    times_compiled = 5 if smoke else 100
    for name, compile_text, text, goal in (
        ("filter a", hog.compile_expression, FILTER_A, 0.3),
        ("filter b", hog.compile_expression, FILTER_B, None),
        ("destination c", hog.compile_program, DESTINATION, 2),
    ):
        wanted = "" if goal is None else f" (goal {goal})"
        print(f"compile {name:<14} {compile_ms(compile_text, text, times_compiled):.2f} ms{wanted}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
