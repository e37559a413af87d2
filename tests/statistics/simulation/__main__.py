"""Simulate everything, print the tables, write them into docs/statistics.md.

    python -m tests.statistics.simulation [--runs 20000] [--watched 4000] [--jobs 1] [--write docs/statistics.md]

Ends with status 1 when a promise is not kept. The tables are deterministic for a number of runs.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Protocol

from tests.statistics.simulation.kinds import KINDS
from tests.statistics.simulation.promises import (
    DAYS,
    FixedHorizon,
    Peeking,
    Share,
    VarianceReduction,
    adjusted_kinds,
    daily_kinds,
    fixed_horizon,
    peeking,
    variance_reduction,
)

BEGIN, END = "<!-- simulation: begin -->", "<!-- simulation: end -->"


class Promise(Protocol):
    @property
    def kind(self) -> str: ...

    @property
    def kept(self) -> bool: ...


Task = Callable[[], Promise | list[FixedHorizon]]


def percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def measured(share: Share) -> str:
    """The observed share, with its distance from the nominal one where there is one to keep."""
    if share.at_most or share.at_least:
        return percent(share.observed)
    return f"{percent(share.observed)} ({share.standard_errors:+.1f})"


def verdict(promise: Promise) -> str:
    return "yes" if promise.kept else "**no**"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def fixed_table(lines: Sequence[FixedHorizon]) -> str:
    head = (
        "metric",
        "method",
        "effect",
        "per group",
        "false positives",
        "coverage",
        "power",
        "promised",
        "kept",
    )
    return table(
        head,
        [
            (
                line.kind,
                line.method,
                str(line.difference),
                f"{line.size:,}",
                measured(line.false_positives),
                measured(line.coverage),
                percent(line.power.observed),
                percent(line.power.promised),
                verdict(line),
            )
            for line in lines
        ],
    )


def peeking_table(lines: Sequence[Peeking]) -> str:
    return table(
        ("metric", "sequential", "fixed horizon, for comparison", "kept"),
        [
            (line.kind, percent(line.sequential.observed), percent(line.fixed.observed), verdict(line))
            for line in lines
        ],
    )


def reduction_table(lines: Sequence[VarianceReduction]) -> str:
    head = (
        "metric",
        "variance removed",
        "as the results claim",
        "coverage",
        "coverage of PostHog's form",
        "kept",
    )
    return table(
        head,
        [
            (
                line.kind,
                percent(line.observed),
                percent(line.claimed),
                measured(line.coverage),
                percent(line.posthog_coverage.observed),
                verdict(line),
            )
            for line in lines
        ],
    )


def tasks(runs: int, watched: int) -> list[Task]:
    """What there is to simulate, in the order of the tables; each has random numbers of its own."""
    return [
        *(partial(fixed_horizon, kind, runs) for kind in KINDS),
        *(partial(peeking, kind, watched) for kind in daily_kinds()),
        *(partial(variance_reduction, kind, runs) for kind in adjusted_kinds()),
    ]


def done(task: Task) -> list[Promise]:
    start = monotonic()
    result = task()
    lines = result if isinstance(result, list) else [result]
    print(f"{lines[0].kind}: {monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    return lines


def section(runs: int, watched: int, lines: Sequence[Promise]) -> str:
    """The section of the document."""
    return f"""{runs:,} experiments behind each line, {watched:,} where they are looked at daily. In brackets the
distance from the nominal share, in standard errors.

**Judged once, at the planned size.** False positives without an effect, coverage of the 95 % interval and power with
one. Nominal false positives are 5 % (Bayesian 10 %, see above), nominal coverage is 95 %; a sequential test looked at
once stays below the first and above the second. *Promised* is the power that `power_at` gives for this size.

{fixed_table([line for line in lines if isinstance(line, FixedHorizon)])}

**Looked at every day for {DAYS} days**, stopped at the first significant result, without an effect: how many were
stopped.

{peeking_table([line for line in lines if isinstance(line, Peeking)])}

**CUPED**, relative effects, fixed horizon.

{reduction_table([line for line in lines if isinstance(line, VarianceReduction)])}
"""


def write(path: Path, text: str) -> None:
    before, _, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    path.write_text(f"{before}{BEGIN}\n{text}{END}{after}", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20_000, help="experiments behind each line")
    parser.add_argument("--watched", type=int, default=4_000, help="experiments that are looked at daily")
    parser.add_argument("--write", type=Path, help="document whose section to replace")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    options = parser.parse_args(arguments)
    processes = multiprocessing.get_context("forkserver")  # whoever calls this may have threads
    with ProcessPoolExecutor(options.jobs, processes) as pool:
        lines = [line for some in pool.map(done, tasks(options.runs, options.watched)) for line in some]
    text = section(options.runs, options.watched, lines)
    print(text)
    if options.write:
        write(options.write, text)
    broken = [line for line in lines if not line.kept]
    for line in broken:
        print(f"not kept: {line}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
