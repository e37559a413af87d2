"""docs/statistics.md: every example prints what it shows, and the tables are those of the long simulation."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
from tests.statistics.simulation.__main__ import (
    BEGIN,
    END,
    VERDICTS_BEGIN,
    VERDICTS_END,
    WORLDS_BEGIN,
    WORLDS_END,
)
from tests.statistics.simulation.kinds import KINDS, Additive
from tests.statistics.simulation.promises import MANY_RUNS, METHODS, daily_kinds
from tests.statistics.simulation.worlds import DAILY, ONCE, POWER

from hoglab.statistics import Correction, StatisticsConfig, ValidationFailure, resolve_config
from hoglab.statistics.verdict import State

TEXT = (Path(__file__).parents[2] / "docs/statistics.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```([a-z]*)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
EXAMPLES = [
    (program, shown[1])
    for (language, program), shown in pairwise(BLOCKS)
    if language == "python" and shown[0] == "text"
]


EXPORTED = """\
variant,number_of_samples,sum,sum_squares
control,2507,1196.87,37377.9767
test,2507,1922.7,94698.29
"""
"""The columns that an example reads of the rows that `hoglab experiment results` writes."""


@pytest.mark.parametrize(("program", "shown"), EXAMPLES)
def test_an_example_prints_what_is_shown(
    program: str,
    shown: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "results.csv").write_text(EXPORTED)
    monkeypatch.chdir(tmp_path)
    exec(program, {})  # noqa: S102 - our own documentation
    printed = capsys.readouterr().out
    numbers = r"-?\d+\.\d{6,}(?:e-?\d+)?"
    assert re.sub(numbers, "#", printed) == re.sub(numbers, "#", shown)
    # The last digits of a long number may differ between versions of scipy and processors.
    expected = [pytest.approx(float(number), rel=1e-9) for number in re.findall(numbers, shown)]
    assert [float(number) for number in re.findall(numbers, printed)] == expected


def test_every_program_is_such_an_example() -> None:
    assert len(EXAMPLES) == sum(language == "python" for language, _ in BLOCKS) == 5


def test_scipy_and_hoglab_agree_on_the_rows_shown() -> None:
    by_scipy, by_hoglab = (shown for program, shown in EXAMPLES if "p_value" in shown)

    def numbers(shown: str) -> list[tuple[str, list[float]]]:
        lines = [line.partition(" ") for line in shown.splitlines()]
        return [(name, [float(n) for n in re.findall(r"-?\d+\.\d+", rest)]) for name, _, rest in lines]

    assert [name for name, _ in numbers(by_scipy)] == [name for name, _ in numbers(by_hoglab)]
    for (_, mine), (_, theirs) in zip(numbers(by_scipy), numbers(by_hoglab), strict=True):
        assert mine == pytest.approx(theirs, rel=1e-9)


def test_the_twelve_lines_are_twelve() -> None:
    program = next(program for program, _ in EXAMPLES if "from scipy" in program)
    computing = [line for line in program.splitlines() if line and not line.startswith(("import ", "from "))]
    assert len(computing) <= 13  # the line that reads the rows, and twelve


def test_the_settings_shown_are_the_defaults() -> None:
    (settings,) = (json.loads(text) for language, text in BLOCKS if language == "json")
    assert resolve_config(settings) == StatisticsConfig(baseline_variant_key="control")
    assert resolve_config({"method": "frequentist", "frequentist": settings["frequentist"]}) == (
        resolve_config({"method": "frequentist"})
    )


def test_codes_and_names_are_all_there() -> None:
    for code in (*ValidationFailure, *Correction):
        assert code == Correction.NONE or f"`{code}`" in TEXT
    anchors = {
        re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")
        for title in re.findall(r"^##+ (.+)$", TEXT, re.MULTILINE)
    }
    assert set(re.findall(r"\]\(#([^)]+)\)", TEXT)) <= anchors


def test_the_tables_are_of_many_runs_and_everything_is_kept() -> None:
    section = TEXT.partition(BEGIN)[2].partition(END)[0]
    runs = re.search(r"^([\d,]+) experiments behind each line", section, re.MULTILINE)
    assert runs is not None
    assert int(runs[1].replace(",", "")) >= MANY_RUNS
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    additive = {kind.name for kind in KINDS if isinstance(kind, Additive)}
    assert {row[0] for row in rows if row[0] in additive and row[-1] != "yes"} == set()
    assert {row[0] for row in rows if row[-1] == "yes"} >= additive
    assert {row[0] for row in rows} <= {kind.name for kind in (*KINDS, *daily_kinds())} | {"metric", "---"}
    assert sum(row[0] in additive for row in rows) >= 2 * len(METHODS) * len(additive)
    assert [row for row in rows if row[-1] == "**no**"] == []


def test_the_tables_of_hard_worlds_are_of_many_runs_and_everything_is_kept() -> None:
    section = TEXT.partition(WORLDS_BEGIN)[2].partition(WORLDS_END)[0]
    runs = re.match(r"\s*([\d,]+) experiments behind each line", section)
    assert runs is not None
    assert int(runs[1].replace(",", "")) >= MANY_RUNS
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    kept = {tuple(row[:2]) for row in rows if row[-1] == "yes"}
    promised = {(world.name, world.sizes) for world in (*ONCE, *DAILY, *POWER) if world.promised}
    assert kept == promised
    assert [row for row in rows if row[-1] == "**no**"] == []


def test_the_tables_of_verdicts_are_of_many_runs_and_everything_is_kept() -> None:
    section = TEXT.partition(VERDICTS_BEGIN)[2].partition(VERDICTS_END)[0]
    runs = re.match(r"\s*([\d,]+) experiments without an effect", section)
    assert runs is not None
    assert int(runs[1].replace(",", "")) >= MANY_RUNS
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    kept = {(row[0], row[1]) for row in rows if row[-1] == "yes"}
    assert kept >= {(kind.name, method) for kind in daily_kinds() for method in METHODS}
    assert [row for row in rows if row[-1] == "**no**"] == []


def test_every_state_and_reason_of_a_verdict_is_explained() -> None:
    section = TEXT.partition("## The verdict")[2].partition("\n## ")[0]
    folder = Path(__file__).parents[2] / "src/hoglab/statistics/verdict"
    texts = [module.read_text(encoding="utf-8") for module in folder.glob("*.py")]
    codes = {code for text in texts for code in re.findall(r'Reason\(\s*f?"([a-z_{}]+)"', text)}
    codes.remove("{role}_{said}")
    assert len(codes) >= 10
    for code in (
        *State,
        *codes,
        "guardrail_not_shown_safe",
        *(f"{role}_{said}" for role in ("primary", "guardrail", "secondary") for said in ("better", "worse")),
    ):
        assert f"`{code}`" in section, code
