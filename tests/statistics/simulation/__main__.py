"""Simulate everything, print the tables, write them into docs/statistics.md.

    python -m tests.statistics.simulation [--runs 20000] [--watched 4000] [--jobs 1] [--only worlds]
        [--write docs/statistics.md]

Ends with status 1 when a promise is not kept. The tables are deterministic for a number of runs.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Protocol

from tests.statistics.simulation.designs import (
    HISTORIES,
    PLANS,
    DesignPower,
    DesignRates,
    design_power,
    design_rates,
)
from tests.statistics.simulation.designs import WORLDS as DESIGN_WORLDS
from tests.statistics.simulation.harm import HARMS, FalseAlarms, TrueAlarms, false_alarms, true_alarms
from tests.statistics.simulation.harm import WORLDS as HARM_WORLDS
from tests.statistics.simulation.kinds import KINDS
from tests.statistics.simulation.promises import (
    DAYS,
    METHODS,
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
from tests.statistics.simulation.rule import FAMILIES, GUARDRAILS, RuleRates, false_ships, harmed, winners
from tests.statistics.simulation.verdicts import FamilyRates, VerdictRates, family_rates, verdict_rates
from tests.statistics.simulation.worlds import (
    DAILY,
    LIFTS,
    ONCE,
    POWER,
    Daily,
    Found,
    Once,
    daily,
    found,
    once,
)

from hoglab.statistics import Correction

BEGIN, END = "<!-- simulation: begin -->", "<!-- simulation: end -->"
VERDICTS_BEGIN, VERDICTS_END = "<!-- verdicts: begin -->", "<!-- verdicts: end -->"
WORLDS_BEGIN, WORLDS_END = "<!-- worlds: begin -->", "<!-- worlds: end -->"
RULE_BEGIN, RULE_END = "<!-- rule: begin -->", "<!-- rule: end -->"
HARM_BEGIN, HARM_END = "<!-- harm: begin -->", "<!-- harm: end -->"
DESIGNS_BEGIN, DESIGNS_END = "<!-- designs: begin -->", "<!-- designs: end -->"
METHODS_PART, VERDICTS_PART, WORLDS_PART, RULE_PART = "methods", "verdicts", "worlds", "rule"
HARM_PART, DESIGNS_PART = "harm", "designs"


class Promise(Protocol):
    @property
    def kind(self) -> str: ...

    @property
    def kept(self) -> bool: ...


Task = Callable[[], Promise | list[FixedHorizon] | list[VerdictRates] | list[FamilyRates] | list[Once]]


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


def verdict_table(lines: Sequence[VerdictRates]) -> str:
    head = (
        "metric",
        "method",
        "planned end",
        "better, read once",
        "better, read daily",
        "better or worse, read daily",
        "kept",
    )
    return table(
        head,
        [
            (
                line.kind,
                line.method,
                line.plan,
                percent(line.once.observed),
                percent(line.better.observed),
                measured(line.clear),
                verdict(line),
            )
            for line in lines
        ],
    )


def family_table(lines: Sequence[FamilyRates]) -> str:
    return table(
        ("metrics", "correction", "any of them better or worse", "kept"),
        [
            (
                line.kind,
                str(line.correction),
                percent(line.clear.observed),
                "not promised" if line.correction is Correction.NONE else verdict(line),
            )
            for line in lines
        ],
    )


def once_table(lines: Sequence[Once]) -> str:
    head = (
        *("metric", "groups", "method", "better", "worse", "worse by PostHog's numbers"),
        *(f"coverage at {lift:+.0%}" if lift else "coverage at 0" for lift in LIFTS),
        "kept",
    )
    return table(
        head,
        [
            (
                *(line.kind, line.sizes, line.method),
                *(percent(share.observed) for share in (line.better, line.worse, line.worse_by_posthog)),
                *(percent(line.coverage[lift].observed) for lift in LIFTS),
                verdict(line) if line.promised else "not promised",
            )
            for line in lines
        ],
    )


def daily_table(lines: Sequence[Daily]) -> str:
    return table(
        ("metric", "new a day", "better", "worse", "worse by PostHog's numbers", "kept"),
        [
            (
                *(line.kind, line.sizes),
                *(percent(share.observed) for share in (line.better, line.worse, line.worse_by_posthog)),
                verdict(line),
            )
            for line in lines
        ],
    )


def found_table(lines: Sequence[Found]) -> str:
    return table(
        ("metric", "new a day", "found", "median day", "wrong direction", "effect ever missed", "kept"),
        [
            (
                *(line.kind, line.sizes, percent(line.better.observed), str(line.median_day)),
                *(percent(line.worse.observed), percent(line.missed.observed), verdict(line)),
            )
            for line in lines
        ],
    )


def rule_table(lines: Sequence[RuleRates]) -> str:
    return table(
        ("experiments", "method", "ships", "promised", "kept"),
        [
            (
                line.kind,
                line.method,
                percent(line.ships.observed),
                f"at {'least' if line.ships.at_least else 'most'} {100 * line.ships.nominal:g} %",
                verdict(line),
            )
            for line in lines
        ],
    )


def false_alarm_table(lines: Sequence[FalseAlarms]) -> str:
    return table(
        ("people, without an effect", f"stopped within {DAYS} days", "kept"),
        [(line.kind, percent(line.alarms.observed), verdict(line)) for line in lines],
    )


def true_alarm_table(lines: Sequence[TrueAlarms]) -> str:
    days = list(lines[0].by_day) if lines else []
    return table(
        ("people, and the effect", *(f"stopped by day {day}" for day in days), "median day"),
        [(line.kind, *map(percent, line.by_day.values()), f"{line.median:.1f}") for line in lines],
    )


def design_table(lines: Sequence[DesignRates]) -> str:
    return table(
        ("design", "metric", "new a day", "better", "worse", "kept"),
        [
            (
                *(line.kind, line.world, line.sizes),
                *(percent(share.observed) for share in (line.better, line.worse)),
                verdict(line),
            )
            for line in lines
        ],
    )


def design_power_table(lines: Sequence[DesignPower]) -> str:
    head = (
        *("design", "metric", "found", "by a single look", "power promised", "wrong direction"),
        *("people on average", "median day", "kept"),
    )
    return table(
        head,
        [
            (
                *(line.kind, line.world),
                *map(
                    percent, (line.found.observed, line.single.observed, line.promised, line.worse.observed)
                ),
                *(percent(line.people), str(line.median_day), verdict(line)),
            )
            for line in lines
        ],
    )


def tasks(runs: int, watched: int, parts: Collection[str]) -> list[Task]:
    """What there is to simulate, in the order of the tables; each has random numbers of its own."""
    verdicts: list[Task] = [
        *(partial(verdict_rates, kind, watched) for kind in daily_kinds()),
        partial(family_rates, runs),
    ]
    methods: list[Task] = [
        *(partial(fixed_horizon, kind, runs) for kind in KINDS),
        *(partial(peeking, kind, watched) for kind in daily_kinds()),
        *(partial(variance_reduction, kind, runs) for kind in adjusted_kinds()),
    ]
    worlds: list[Task] = [
        *(partial(once, world, runs) for world in ONCE),
        *(partial(daily, world, watched) for world in DAILY),
        *(partial(found, world, watched) for world in POWER),
    ]
    rule: list[Task] = [
        *(partial(false_ships, method, *family, runs) for family in FAMILIES for method in METHODS),
        *(partial(harmed, method, margins, runs) for margins in (1, 3) for method in METHODS),
        *(partial(winners, method, watched) for method in METHODS),
    ]
    harm: list[Task] = [
        *(partial(false_alarms, world, watched) for world in HARM_WORLDS),
        *(partial(true_alarms, *effect, watched) for effect in HARMS),
    ]
    designs: list[Task] = [
        *(partial(design_rates, plan, world, runs) for plan in PLANS for world in DESIGN_WORLDS),
        *(partial(design_power, plan, name, runs) for plan in PLANS for name in HISTORIES),
    ]
    chosen = {
        DESIGNS_PART: designs,
        WORLDS_PART: worlds,
        METHODS_PART: methods,
        RULE_PART: rule,
        HARM_PART: harm,
        VERDICTS_PART: verdicts,
    }
    return [task for part, of_part in chosen.items() if part in parts for task in of_part]


def done(task: Task) -> list[Promise]:
    start = monotonic()
    result = task()
    lines = result if isinstance(result, list) else [result]
    print(f"{lines[0].kind}: {monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    return lines


def section_of_verdicts(runs: int, watched: int, lines: Sequence[Promise]) -> str:
    """The section of the document on verdicts."""
    return f"""{watched:,} experiments without an effect behind each line of the first table, {runs:,} behind those of
the second.

{verdict_table([line for line in lines if isinstance(line, VerdictRates)])}

{family_table([line for line in lines if isinstance(line, FamilyRates)])}
"""


def section_of_rule(runs: int, watched: int, lines: Sequence[Promise]) -> str:
    """The section of the document on the rule of shipping."""
    return f"""{runs:,} experiments behind each line, {watched:,} where they have {GUARDRAILS} guardrails. Families are
primary metrics × variants.

{rule_table([line for line in lines if isinstance(line, RuleRates)])}
"""


def section_of_harm(_runs: int, watched: int, lines: Sequence[Promise]) -> str:
    """The section of the document on certain harm."""
    return f"""{watched:,} experiments behind each line.

{false_alarm_table([line for line in lines if isinstance(line, FalseAlarms)])}

{true_alarm_table([line for line in lines if isinstance(line, TrueAlarms)])}
"""


def section_of_designs(runs: int, _watched: int, lines: Sequence[Promise]) -> str:
    """The section of the document on designs that stop early."""
    return f"""{runs:,} experiments behind each line; all plans have 24 days. Without an effect, at most 5 % together:

{design_table([line for line in lines if isinstance(line, DesignRates)])}

With the planned effect, and as many people as a single look needs for 80 % power:

{design_power_table([line for line in lines if isinstance(line, DesignPower)])}
"""


def section_of_worlds(runs: int, watched: int, lines: Sequence[Promise]) -> str:
    """The section of the document on hard worlds."""
    return f"""{runs:,} experiments behind each line of the first table, {watched:,} behind those of the others.

**Looked at once.** How many are called better and worse without an effect, nominally 2.5 % each (Bayesian 5 %), and
coverage of the 95 % intervals by the true effect, of experiments that have statistics.

{once_table([line for line in lines if isinstance(line, Once)])}

**Sequential, looked at every day for {DAYS} days**, stopped at the first significant result, without an effect: at most
5 % together.

{daily_table([line for line in lines if isinstance(line, Daily)])}

**Sequential, with an effect of +50 %** (of buyers: on how many there are).

{found_table([line for line in lines if isinstance(line, Found)])}
"""


def section(runs: int, watched: int, lines: Sequence[Promise]) -> str:
    """The section of the document on methods."""
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


def write(path: Path, text: str, begin: str = BEGIN, end: str = END) -> None:
    before, _, rest = path.read_text(encoding="utf-8").partition(begin)
    _, _, after = rest.partition(end)
    path.write_text(f"{before}{begin}\n{text}{end}{after}", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20_000, help="experiments behind each line")
    parser.add_argument("--watched", type=int, default=4_000, help="experiments that are looked at daily")
    parser.add_argument("--write", type=Path, help="document whose section to replace")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parts = (WORLDS_PART, METHODS_PART, RULE_PART, HARM_PART, DESIGNS_PART, VERDICTS_PART)
    parser.add_argument("--only", choices=parts, help="one part of the promises, and its tables")
    options = parser.parse_args(arguments)
    wanted = parts if options.only is None else (options.only,)
    processes = multiprocessing.get_context("forkserver")  # whoever calls this may have threads
    with ProcessPoolExecutor(options.jobs, processes) as pool:
        lines = [
            line for some in pool.map(done, tasks(options.runs, options.watched, wanted)) for line in some
        ]
    for part, of_part, *marks in (
        (WORLDS_PART, section_of_worlds, WORLDS_BEGIN, WORLDS_END),
        (METHODS_PART, section, BEGIN, END),
        (RULE_PART, section_of_rule, RULE_BEGIN, RULE_END),
        (HARM_PART, section_of_harm, HARM_BEGIN, HARM_END),
        (DESIGNS_PART, section_of_designs, DESIGNS_BEGIN, DESIGNS_END),
        (VERDICTS_PART, section_of_verdicts, VERDICTS_BEGIN, VERDICTS_END),
    ):
        if part not in wanted:
            continue
        text = of_part(options.runs, options.watched, lines)
        print(text)
        if options.write:
            write(options.write, text, *marks)
    broken = [line for line in lines if not line.kept]
    for line in broken:
        print(f"not kept: {line}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    # Other processes find what they are sent by the name of its module, and have no such `__main__`.
    from tests.statistics.simulation import __main__ as simulation

    sys.exit(simulation.main())
