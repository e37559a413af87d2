"""The package stays a light library: no other room, no database, not all of scipy."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from hoglab.statistics import *
assert compare(StatisticsConfig(), Proportion(1529, 87), Proportion(1471, 62)).significant
assert legacy_result(FunnelVariant("control", 100, 900), [FunnelVariant("test", 120, 880)]).probability
assert sample_ratio_mismatch({"a": 90, "b": 110}, {"a": 50, "b": 50}) is not None
loaded = set(sys.modules)
print(sorted(loaded & {"scipy.stats", "scipy.optimize", "scipy.integrate", "sqlite3", "asyncio"}))
rooms = {name.split(".")[1] for name in loaded if name.startswith("hoglab.")}
print(sorted(rooms))
"""


def test_a_comparison_loads_neither_scipy_stats_nor_other_rooms() -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == ["[]", "['statistics']"]
