"""The promises of docs/statistics.md on few experiments; `make validate-statistics` holds them to many."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.statistics.simulation.__main__ import (
    BEGIN,
    END,
    RULE_BEGIN,
    RULE_END,
    VERDICTS_BEGIN,
    VERDICTS_END,
    WORLDS_BEGIN,
    WORLDS_END,
    main,
    write,
)
from tests.statistics.simulation.kinds import KINDS, Accumulating, Kind
from tests.statistics.simulation.promises import (
    METHODS,
    STANDARD_ERRORS,
    Power,
    Share,
    adjusted_kinds,
    daily_kinds,
    fixed_horizon,
    peeking,
    variance_reduction,
)
from tests.statistics.simulation.rule import SHIPS, false_ships, harmed, winners
from tests.statistics.simulation.verdicts import family_rates, verdict_rates
from tests.statistics.simulation.worlds import DAILY, ONCE

RUNS = 400
VERDICT_RUNS = 250


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_false_positives_coverage_and_power_are_as_promised(kind: Kind) -> None:
    lines = fixed_horizon(kind, RUNS)
    assert len(lines) == 2 * len(METHODS)
    assert [line for line in lines if not line.kept] == []


@pytest.mark.parametrize(
    "kind", [kind for kind in daily_kinds() if isinstance(kind, Accumulating) or "funnel" in kind.name],
    ids=lambda kind: kind.name,
)  # fmt: skip
def test_looking_every_day_inflates_a_fixed_test_but_not_a_sequential_one(kind: Kind) -> None:
    # Values that keep growing make looks alike, so that fewer of them are wrong for the first time.
    line = peeking(kind, 2 * RUNS if isinstance(kind, Accumulating) else RUNS)
    assert line.kept
    assert line.fixed.standard_errors > STANDARD_ERRORS


@pytest.mark.parametrize("kind", adjusted_kinds(), ids=lambda kind: kind.name)
def test_cuped_removes_the_variance_that_it_says(kind: Kind) -> None:
    line = variance_reduction(kind, RUNS)
    assert line.kept
    assert line.claimed > 0.1
    assert line.posthog_coverage.observed < line.coverage.observed - 0.03


@pytest.mark.parametrize(
    "kind", [kind for kind in daily_kinds() if isinstance(kind, Accumulating) or kind.name in ("mean", "funnel")],
    ids=lambda kind: kind.name,
)  # fmt: skip
def test_a_verdict_errs_as_often_as_its_method_however_often_it_is_read(kind: Kind) -> None:
    lines = verdict_rates(kind, VERDICT_RUNS)
    assert [line for line in lines if not line.kept] == []
    assert {line.method for line in lines} == set(METHODS)
    # Somebody decides: the rates are not kept by silence.
    assert all(line.clear.count > 0 for line in lines if line.method == "bayesian")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("primaries", "arms"), [(1, 1), (5, 1), (1, 3), (3, 2)])
def test_nothing_ships_without_an_effect_more_often_than_promised(
    method: str, primaries: int, arms: int
) -> None:
    line = false_ships(method, primaries, arms, 2 * RUNS)
    assert line.kept, line
    assert method == "sequential" or line.ships.count > 0


@pytest.mark.parametrize("method", METHODS)
def test_harmed_guardrails_hold_back_and_others_do_not(method: str) -> None:
    by_its_margin, by_three = harmed(method, 1, RUNS), harmed(method, 3, RUNS)
    assert by_its_margin.kept, by_its_margin
    assert by_three.kept, by_three
    assert winners(method, RUNS // 4).kept


def test_a_corrected_verdict_errs_no_more_often_for_more_metrics() -> None:
    plain, corrected = family_rates(VERDICT_RUNS * 2)
    assert corrected.kept
    assert plain.clear.standard_errors > STANDARD_ERRORS
    assert corrected.clear.count < plain.clear.count


def test_a_promise_that_is_broken_is_seen() -> None:
    assert not Share(1200, 20_000, 0.05).kept
    assert Share(1090, 20_000, 0.05).kept
    assert not Share(1000, 20_000, 0.05, at_most=True).kept
    assert Share(999, 20_000, 0.05, at_most=True).kept
    assert not Share(19_000, 20_000, 0.95, at_least=True).kept
    assert not Share(40, 300, 0.05, at_most=True).kept
    assert Share(16, 300, 0.05, at_most=True).kept
    assert not Power(15_580, 20_000, 0.80).kept
    assert Power(15_700, 20_000, 0.80).kept


def test_writing_replaces_the_section_and_nothing_else(tmp_path: Path) -> None:
    document = tmp_path / "document.md"
    document.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    write(document, "new\n")
    assert document.read_text(encoding="utf-8") == f"before\n{BEGIN}\nnew\n{END}\nafter\n"


def test_the_command_simulates_everything_and_writes_it_down(tmp_path: Path) -> None:
    """Also where tasks go to other processes, which not everything can be sent to."""
    document = tmp_path / "document.md"
    document.write_text(
        f"{BEGIN}\n{END}\n{RULE_BEGIN}\n{RULE_END}\n{VERDICTS_BEGIN}\n{VERDICTS_END}\n{WORLDS_BEGIN}\n{WORLDS_END}\n",
        encoding="utf-8",
    )
    main(["--runs", "20", "--watched", "4", "--jobs", "2", "--write", str(document)])
    text = document.read_text(encoding="utf-8")
    methods, _, verdicts = text.partition(VERDICTS_BEGIN)
    assert all(
        f"| {world.name} | {world.sizes} |" in verdicts.partition(WORLDS_BEGIN)[2]
        for world in (*ONCE, *DAILY)
    )
    assert all(methods.count(f"| {kind.name} | {method}") == 2 for kind in KINDS for method in METHODS)
    assert all(f"| {SHIPS}: 5 × 3 | {method} |" in text for method in METHODS)
    assert all(f"| {kind.name} | {method} |" in verdicts for kind in daily_kinds() for method in METHODS)
    assert all(f"| {kind.name} |" in text for kind in [*daily_kinds(), *adjusted_kinds()])
