"""How fast a variant is judged, and what importing the statistics costs.

Prints the time to judge one variant for each kind of metric and method beside the same Welch test made by
scipy.stats, and what importing either costs a fresh process. Times do not depend on the number of people.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from math import sqrt
from timeit import Timer

from scipy import stats

from hoglab.statistics import (
    BayesianConfig,
    CupedConfig,
    FrequentistConfig,
    FunnelVariant,
    Proportion,
    Ratio,
    Retention,
    SampleMean,
    StatisticsConfig,
    SufficientStatistics,
    WithCovariate,
    compare,
    legacy_result,
)

PAIRS: dict[str, tuple[SufficientStatistics, SufficientStatistics]] = {
    "mean": (SampleMean(2507, 1196.87, 37377.9767), SampleMean(2461, 1922.7, 94698.29)),
    "funnel": (Proportion(1529, 87), Proportion(1471, 62)),
    "ratio": (
        Ratio(1200, 18230.5, 412345.75, 2310, 6120, 39876.25),
        Ratio(1185, 19012.25, 441200.5, 2295, 6055, 41210.75),
    ),
    "retention": (Retention(800, 240), Retention(820, 287)),
    "mean, CUPED": (
        WithCovariate(SampleMean(1000, 5200.0, 34100.0), 5100.0, 33000.0, 31200.0),
        WithCovariate(SampleMean(1020, 5510.0, 37150.0), 5190.0, 33480.0, 32750.0),
    ),
}
CUPED = CupedConfig(enabled=True)
METHODS = {
    "bayesian": StatisticsConfig(BayesianConfig(), CUPED),
    "frequentist": StatisticsConfig(FrequentistConfig(), CUPED),
    "sequential": StatisticsConfig(FrequentistConfig(sequential_testing_enabled=True), CUPED),
}
# ru_maxrss would report the parent's peak: it is inherited.
STARTUP = """
import re, time
from pathlib import Path
start = time.perf_counter()
import {module}
elapsed = time.perf_counter() - start
status = Path("/proc/self/status")
peak = re.search(r"VmHWM:\\s+(\\d+)", status.read_text()) if status.exists() else None
print(f"{{1000 * elapsed:.0f}} ms" + (f", {{int(peak[1]) / 1024:.0f}} MB" if peak else ""))
"""


def microseconds(function: Callable[[], object], calls: int) -> float:
    """Best of several runs, per call."""
    return min(Timer(function).repeat(5, calls)) / calls * 1e6


def scipy_welch() -> float:
    control, test = (group.moments() for group in PAIRS["mean"])
    result = stats.ttest_ind_from_stats(
        test.mean,
        sqrt(test.variance),
        test.number_of_samples,
        control.mean,
        sqrt(control.variance),
        control.number_of_samples,
        equal_var=False,
    )
    return float(result.pvalue)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="short runs")
    calls = 20 if parser.parse_args().smoke else 2000
    reference = microseconds(scipy_welch, calls)
    print(f"reference: scipy.stats Welch test of the same mean, without interval: {reference:.1f} us")
    print("judging one variant, in us (and relative to the reference)")
    print(f"  {'':14}" + "".join(f"{method:>18}" for method in METHODS))
    for kind, pair in PAIRS.items():
        times = [microseconds(partial(compare, config, *pair), calls) for config in METHODS.values()]
        print(f"  {kind:14}" + "".join(f"{time:10.1f} ({time / reference:4.2f}x)" for time in times))
    legacy = partial(legacy_result, FunnelVariant("control", 100, 900), [FunnelVariant("test", 120, 880)])
    print(f"  legacy funnel, exact probabilities: {microseconds(legacy, max(calls // 20, 2)):.0f}")
    print("importing in a fresh process")
    for module in ("hoglab.statistics", "scipy.stats"):
        run = subprocess.run(
            [sys.executable, "-c", STARTUP.format(module=module)], capture_output=True, text=True, check=True
        )
        print(f"  {module:20}{run.stdout.strip()}")


if __name__ == "__main__":
    main()
