"""Reports of results: what is read from the API's JSON, and how it is drawn."""

from __future__ import annotations

import csv
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from hoglab.analysis.definitions.naming import metrics_of, title, value_label
from hoglab.analysis.presentation import NO_STATISTICS
from hoglab.analysis.query.model import Math
from hoglab.reports.files import document, rows, write
from hoglab.reports.html import page
from hoglab.reports.plots import WIDTH, Curve, curves
from hoglab.reports.report import ExperimentReport, MetricReport, metric_report
from hoglab.reports.terminal import IntervalPlot, PlotRow, plot_rows, report_lines, results_table
from hoglab.statistics import FrequentistConfig, StatisticsConfig, resolve_config
from hoglab.statistics.numbers import effect_text, interval_text, mean_text, p_text, percent_text

FREQUENTIST = StatisticsConfig(FrequentistConfig(0.05))


def row(key: str, **fields: Any) -> dict[str, Any]:
    sums = {"number_of_samples": 100, "sum": 20, "sum_squares": 20, "denominator_sum": None}
    return {"key": key, **sums, "validation_failures": [], **fields}


def compared(key: str, interval: list[float] | None, p_value: float | None, **fields: Any) -> dict[str, Any]:
    significant = p_value is not None and p_value < 0.05
    # The baseline has 20: the effect is the difference of the means.
    total = 20 if interval is None or None in interval else 20 * (1 + sum(interval) / 2)
    shown = {"sum": total, "sum_squares": 20 + total, "confidence_interval": interval, "p_value": p_value}
    return row(key, method="frequentist", significant=significant, **{**shown, **fields})


def report(*variants: dict[str, Any], kind: str = "mean", **fields: Any) -> MetricReport:
    metric = {"metric_type": kind, "uuid": "u", **fields.pop("metric", {})}
    result = {"baseline": row("control", **fields), "variant_results": list(variants)}
    return metric_report(metric, "Revenue", primary=True, config=FREQUENTIST, result=result)


@pytest.mark.parametrize(
    ("kind", "fields", "mean"),
    [
        ("mean", {}, 0.2),
        ("funnel", {}, 0.2),
        ("ratio", {"denominator_sum": 40}, 0.5),
        ("retention", {"denominator_sum": 50}, 0.4),
        ("quantile", {"quantile": 7.5}, 7.5),
        ("quantile", {"quantile": 0, "number_of_samples": 0}, None),
        ("mean", {"number_of_samples": 0, "sum": 0}, None),
        ("ratio", {"denominator_sum": 0}, None),
    ],
)
def test_the_mean_is_what_the_metric_says(kind: str, fields: dict[str, Any], mean: float | None) -> None:
    found = report(kind=kind, **fields).result
    assert found is not None
    assert found.baseline.mean == mean


def test_a_corrected_p_value_decides() -> None:
    found = report(
        compared("a", [0.01, 0.2], 0.02, adjusted_p_value=0.06),
        compared("b", [0.1, 0.2], 0.001, adjusted_p_value=0.003),
        compared("c", [0.1, 0.2], 0.001, adjusted_p_value=None),
    )
    assert found.result is not None
    assert [(each.p_value, each.significant) for each in found.result.variants] == [
        (0.06, False),
        (0.003, True),
        (0.001, True),
    ]
    assert [found.is_better(each) for each in found.result.variants] == [None, True, True]


def test_lower_is_better_where_the_goal_says_so() -> None:
    found = report(
        compared("a", [-0.2, -0.1], 0.001), compared("b", [0.1, 0.2], 0.001), metric={"goal": "decrease"}
    )
    assert found.result is not None
    assert [found.is_better(each) for each in found.result.variants] == [True, False]


def test_why_there_is_no_interval_is_said() -> None:
    few = report(compared("a", None, None, validation_failures=["not-enough-exposures"])).result
    behind = report(compared("a", None, None), validation_failures=["baseline-mean-is-zero"]).result
    neither = report(compared("a", [None, None], None)).result
    assert few is not None
    assert behind is not None
    assert neither is not None
    problems = [each.variants[0].problem for each in (few, behind, neither)]
    assert problems == [
        "fewer than 50 people",
        "baseline: its value is zero, so there is no relative change",
        NO_STATISTICS,
    ]


def test_every_metric_of_an_experiment_has_a_name() -> None:
    purchase = {"kind": "EventsNode", "event": "purchase"}
    experiment = {
        "metrics": [{"name": "Revenue"}, {"metric_type": "mean", "source": {**purchase, "math": "dau"}}],
        "metrics_secondary": [{"metric_type": "funnel", "series": [{"event": None}, {"id": 4}, purchase]}],
        "saved_metrics": [
            {"metadata": {"type": "secondary"}, "query": {"kind": "ExperimentTrendsQuery"}, "name": "Saved"}
        ],
    }
    assert [(primary, name) for _, primary, name in metrics_of(experiment)] == [
        (True, "Revenue"),
        (True, "dau, purchase"),
        (False, "any event → action 4 → purchase"),
        (False, "Saved"),
    ]
    assert title(
        {"metric_type": "ratio", "numerator": {**purchase, "math": "sum", "math_property": "a"}}
    ) == ("sum of a, purchase / ?")


def drawn(rows: list[PlotRow]) -> list[str]:
    console = Console(width=120, color_system=None)
    with console.capture() as captured:
        console.print(IntervalPlot(rows, width=41))
    return captured.get().splitlines()


def test_intervals_share_an_axis_with_a_line_at_no_effect() -> None:
    lines = drawn([PlotRow("a", -0.1, 0.3), PlotRow("bb", 0.2, 0.4, truth=0.25)])
    assert len({line.index("┃") for line in lines[:2]}) == 1
    first, second = (line[4:] for line in lines[:2])
    zero = first.index("┃")
    assert first.index("├") < zero < first.index("●") < first.index("┤")
    assert zero < second.index("├") < second.index("◆") < second.index("●")
    assert "+40.0%" in lines[2]
    assert "◆ the true effect" in lines[3]


def test_an_interval_far_wider_than_the_others_is_cut_off() -> None:
    lines = drawn([PlotRow("a", -0.1, 0.1), PlotRow("b", -0.1, 0.12), PlotRow("wide", -90, 90)])
    assert "◀" in lines[2]
    assert "▶" in lines[2]
    assert lines[0].index("┤") - lines[0].index("├") >= 5
    assert drawn([]) == ["No intervals yet."]


def narrow(rows: list[PlotRow]) -> list[str]:
    console = Console(width=80, color_system=None)
    with console.capture() as captured:
        console.print(IntervalPlot(rows))
    return captured.get().splitlines()


def test_every_interval_is_drawn_beside_a_name_of_any_length() -> None:
    name = "The share of new visitors who bring at least one friend within two weeks of their first visit"
    keys = [f"variant-with-a-rather-long-key-of-more-than-half-a-line-{number}" for number in range(3)]
    lines = narrow(
        [PlotRow(key, -0.1, 0.3, metric=name) for key in keys] + [PlotRow("b", 0, 0.1, metric="再")]
    )
    assert len(lines) == 8
    assert lines[0].startswith("The share of new visitors")
    assert [line[:58].strip()[-2:] for line in lines[1:4]] == ["-0", "-1", "-2"]
    assert lines[4].strip() == "再"
    for line in [*lines[1:4], lines[5]]:
        assert "├" in line or "●" in line
        assert cell_len(line) <= 80
    assert len({line.index("┃") for line in lines[1:4]}) == 1
    wide = narrow([PlotRow("再再", -0.1, 0.3, metric="m"), PlotRow("bbbb", -0.1, 0.3, metric="m")])
    assert wide[0].startswith("m · 再再 "), "two columns for each letter"
    assert cell_len(wide[0].partition("┃")[0]) == cell_len(wide[1].partition("┃")[0])


def test_labels_of_a_legend_do_not_overlap() -> None:
    labels = [f"variant-with-a-rather-long-key-{number}" for number in range(9)] + ["v" * 200]
    found = curves(["2026-03-01", "2026-03-02"], [Curve(label, [1, 2]) for label in labels], str, "People")
    places = [(float(box.attrib["x"]), float(box.attrib["y"])) for box in found.iter("rect")]
    assert len(set(places)) == len(labels)
    for (x, y), (next_x, next_y), label in zip(places, places[1:], labels, strict=False):
        assert next_y > y or next_x - x > 5 * len(label)
    height = float(found.attrib["viewBox"].split()[-1])
    assert all(x < WIDTH - 100 and y + 10 <= height for x, y in places)
    assert [text for text in found.itertext() if len(text) > 100] == ["v" * 200], "whole in its title only"


def test_shares_of_people_are_percent() -> None:
    assert mean_text(0.30666, is_share=True) == "30.67%"
    assert mean_text(0.30666, is_share=False) == "0.3067"
    assert mean_text(None, is_share=True) == "–"


def test_small_p_values_are_only_called_small() -> None:
    found = report(compared("a", [0.1, 0.3], 1e-9), compared("b", [0.1, 0.3], 0.0123))
    console = Console(width=150, color_system=None)
    with console.capture() as captured:
        console.print(results_table([found], "Primary", 0.95, relative=True))
    text = captured.get()
    assert "p < 0.0001 *" in text
    assert "p = 0.012 *" in text
    assert "+10.0% … +30.0%" in text


@pytest.mark.parametrize("method", ["bayesian", "frequentist"])
def test_nothing_is_cut_off_on_80_columns(method: str) -> None:
    certain = {"chance_to_win": 0.9999} if method == "bayesian" else {}
    found = report(
        compared("test", [0.108, 0.299], 1e-9, number_of_samples=1_000_065, sum=48_462, **certain),
        compared("a-longer-variant", None, None, validation_failures=["not-enough-exposures"]),
        number_of_samples=1_009_935,
    )
    console = Console(width=80, color_system=None)
    with console.capture() as captured:
        console.print(results_table([found], "Results", 0.95, relative=True))
        console.print(IntervalPlot([PlotRow("Revenue per user · test", 0.108, 0.299, truth=0.2)]))
    text = captured.get()
    assert "…" not in text.replace("+10.8% … +29.9%", "")
    assert "+10.8% … +29.9%" in text
    assert "fewer than 50" in text
    assert "+29.9%" in text.splitlines()[-2]


def test_only_variants_with_an_interval_are_plotted() -> None:
    found = report(compared("a", [0.1, 0.3], 0.001), compared("b", None, None))
    [row] = plot_rows(found)
    assert (row.metric, row.label, row.effect) == ("Revenue", "a", pytest.approx(0.2))


def test_absolute_effects_have_an_axis_for_each_metric_and_shares_are_in_points() -> None:
    rows = [
        PlotRow("test", -10, 30, metric="Revenue"),
        PlotRow("other", 0, 20, metric="Revenue"),
        PlotRow("test", -0.01, 0.03, metric="Rate", is_share=True),
    ]
    console = Console(width=120, color_system=None)
    with console.capture() as captured:
        console.print(IntervalPlot(rows, relative=False, width=41))
    revenue, _, above, rate, below, legend = captured.get().splitlines()
    assert [line.index(end) - line.index("├") for line, end in ((revenue, "┤"), (rate, "┤"))] == [36, 36]
    assert ("+30" in above, "+3 pp" in below, "-1 pp" in below) == (True, True, True)
    assert legend.startswith("┃ no effect")
    assert interval_text((-0.01, 0.034), relative=False, is_share=True) == "-1 pp … +3.4 pp"
    assert interval_text((-0.01, 0.034), relative=False) == "-0.01 … +0.034"
    assert effect_text(0, relative=False, is_share=True) == "0 pp"


@pytest.mark.parametrize(
    ("stats_config", "fields", "said"),
    [
        ({}, {}, ["Certainty: the chance to beat the baseline."]),
        ({"method": "frequentist"}, {}, ["Certainty: two-sided p-values, for a single look at the end."]),
        (
            {"method": "frequentist", "frequentist": {"sequential_testing_enabled": True}},
            {"covariate_sum": 1},
            [
                "Certainty: p-values and intervals that hold whenever they are looked at (sequential).",
                "CUPED: effects are adjusted by what people did before; means are as measured.",
            ],
        ),
        (
            {"method": "frequentist", "multiple_testing_correction": "holm"},
            {"adjusted_p_value": 0.04},
            [
                "Certainty: two-sided p-values, for a single look at the end.",
                "Those of primary metrics are corrected for their number (Holm); intervals are not corrected.",
            ],
        ),
    ],
)
def test_how_the_numbers_were_made_is_said(
    stats_config: dict[str, Any], fields: dict[str, Any], said: list[str]
) -> None:
    whole = ExperimentReport(
        experiment={"stats_config": stats_config},
        config=resolve_config(stats_config),
        findings=(),
        exposures={},
        metrics=(report(compared("a", [0.1, 0.2], 0.01, **fields)),),
        made_at=datetime(2026, 3, 1, tzinfo=UTC),
    )
    assert whole.methods == said


def test_a_quantile_has_no_total() -> None:
    found = report(kind="quantile", quantile=7.5).result
    assert found is not None
    assert found.baseline.total is None


# -- the verdict, and what it withholds ----------------------------------------------------------------------------

VERDICT = {
    "state": "better",
    "headline": "“a” does better on “Revenue”: +20.0% (95% interval +10.0% … +30.0%).",
    "next_action": {"code": "ship_variant", "text": "Ship “a”.", "variant": "a"},
    "reasons": [
        {"code": "single_look", "text": "It is for a single look.", "metric_uuid": None, "variant": None}
    ],
    "metrics": [{"metric_uuid": "u", "variants": [{"variant": "a", "decision": "better"}]}],
    "withholds_decisions": False,
}
MISMATCH = {
    "code": "sample_ratio_mismatch",
    "severity": "critical",
    "message": "The variants have not got their shares (p < 0.0001).",
    "advice": "Look for redirects.",
    "details": {},
}
INVALID = VERDICT | {
    "state": "invalid",
    "headline": f"Do not decide. {MISMATCH['message']}",
    "next_action": {"code": "fix_assignment", "text": MISMATCH["advice"], "variant": None},
    "metrics": [{"metric_uuid": "u", "variants": [{"variant": "a", "decision": "withheld"}]}],
    "withholds_decisions": True,
}


def whole(verdict: dict[str, Any] | None, *rows: dict[str, Any], **fields: Any) -> ExperimentReport:
    """A report on one metric whose variant “a” is far better."""
    withheld = verdict is not None and verdict["withholds_decisions"]
    bayesian = {
        "method": "bayesian",
        "credible_interval": [0.1, 0.3],
        "chance_to_win": 1.0,
        "significant": True,
    }
    result = {"baseline": row("control"), "variant_results": rows or [row("a", **bayesian)]}
    metric = {"metric_type": "mean", "uuid": "u", "source": {"event": "paid", "math": "sum"}}
    found = metric_report(
        metric,
        "Revenue",
        primary=True,
        config=StatisticsConfig(),
        result=result,
        withheld=withheld,
        days=fields.pop("days", None),
    )
    given: dict[str, Any] = {
        "experiment": {
            "id": 1,
            "name": "Checkout",
            "status": "running",
            "feature_flag_key": "checkout",
            "start_date": "2026-03-01T00:00:00Z",
            "end_date": None,
            "stats_config": {},
        },
        "config": StatisticsConfig(),
        "findings": [MISMATCH] if withheld else (),
        "exposures": {},
        "metrics": (found,),
        "made_at": datetime(2026, 3, 1, tzinfo=UTC),
        "verdict": verdict,
    }
    return ExperimentReport(**given | fields)


def in_terminal(found: ExperimentReport) -> str:
    console = Console(width=150, color_system="truecolor", force_terminal=True)
    with console.capture() as captured:
        for part in report_lines(found):
            console.print(part)
    return captured.get()


def test_every_face_tells_the_verdict(tmp_path: Path) -> None:
    found = whole(VERDICT)
    for text in (in_terminal(found), page(found)):
        for part in (VERDICT["headline"], "Ship “a”.", "It is for a single look."):
            assert part in text
    assert document(found)["verdict"] == VERDICT
    by_variant = {each["variant"]: each for each in rows(found)}
    assert (by_variant["a"]["decision"], by_variant["a"]["verdict"]) == ("better", "better")
    assert by_variant["control"]["decision"] is None
    target = tmp_path / "rows.csv"
    write(found, target)
    (line,) = (each for each in csv.DictReader(target.open()) if each["variant"] == "a")
    assert (line["significant"], line["decision"], line["verdict"]) == ("true", "better", "better")


def test_nothing_is_marked_as_a_winner_while_something_critical_is_wrong() -> None:
    fine, wrong = whole(VERDICT), whole(INVALID)
    shown = in_terminal(fine)
    assert "100.0% *" in shown
    assert "* significant" in shown
    assert 'class="better"' in page(fine)
    shown = in_terminal(wrong)
    for text in (shown, page(wrong)):
        assert "Do not decide. The variants have not got their shares" in text
        assert text.count("not got their shares") == 1, "said once"
        assert "withheld" in text
        assert "100.0%" not in text
    assert "*" not in shown
    assert "\x1b[32m" not in shown, "nothing is green"
    assert 'class="better"' not in page(wrong)
    (line,) = (each for each in rows(wrong) if not each["is_baseline"])
    assert (line["significant"], line["decision"], line["verdict"]) == (None, "withheld", "invalid")
    assert (line["chance_to_win"], line["effect"]) == (1.0, pytest.approx(0.2)), "numbers stay"


def test_corrected_p_values_and_cells_are_withheld_too() -> None:
    wrong = whole(INVALID, compared("a", [0.1, 0.3], 1e-9, adjusted_p_value=1e-8))
    shown = in_terminal(wrong)
    assert "p < 0.0001" not in shown.replace(MISMATCH["message"], "")
    assert "*" not in shown


@pytest.mark.parametrize(
    ("metric", "label"),
    [
        ({"metric_type": "funnel"}, "rate"),
        ({"metric_type": "retention"}, "rate"),
        ({"metric_type": "ratio"}, "ratio"),
        ({"metric_type": "quantile", "quantile_level": 0.9}, "p90"),
        ({"metric_type": "quantile", "quantile_level": 0.5}, "median"),
        ({"metric_type": "quantile", "quantile_level": 0.999}, "p99.9"),
        ({"metric_type": "mean", "source": {}}, "mean count"),
        ({"metric_type": "mean", "source": {"math": "sum"}}, "mean sum"),
        ({"metric_type": "mean", "source": {"math": "max"}}, "mean maximum"),
        ({"metric_type": "mean", "source": {"math": "unique_session"}}, "mean sessions"),
        ({"metric_type": "mean", "source": {"math": "no such"}}, "mean count"),
        ({"metric_type": "mean", "source": {"math": "sum"}, "threshold": 3}, "share above"),
        (
            {"metric_type": "mean", "source": {"math": "sum"}, "threshold": 3, "upper_bound_percentile": 0.9},
            "mean sum",
        ),
        (
            {"metric_type": "mean", "source": {"math": "hogql", "math_hogql": "quantile(0.9)(properties.a)"}},
            "mean p90",
        ),
        ({"metric_type": "mean", "source": {"math": "hogql", "math_hogql": "median(1)"}}, "mean median"),
        ({"metric_type": "mean", "source": {"math": "hogql", "math_hogql": "uniq(1)"}}, "mean distinct"),
        ({"kind": "ExperimentTrendsQuery"}, "value"),
    ],
)
def test_a_value_is_labelled_by_the_maths_of_its_metric(metric: dict[str, Any], label: str) -> None:
    assert value_label(metric) == label
    found = metric_report(metric, "Load", primary=True, config=FREQUENTIST)
    assert found.value_label == label


def test_every_math_has_a_label() -> None:
    for math in Math:
        assert value_label({"metric_type": "mean", "source": {"math": math}}).startswith("mean ")


def test_a_percentile_is_not_called_a_mean() -> None:
    found = report(
        compared("a", [0.1, 0.3], 0.001, quantile=8, quantile_level=0.9),
        kind="quantile",
        quantile=7.5,
        quantile_level=0.9,
        metric={"quantile_level": 0.9},
    )
    text = in_terminal(whole(None, metrics=(found,)))
    assert "p90" in text
    assert "Mean" not in text
    assert "<th>P90</th>" in page(whole(None, metrics=(found,)))


def test_people_who_are_held_out_are_a_group_of_their_own() -> None:
    exposures = {
        "timeseries": [{"variant": "control", "days": ["2026-03-01"], "exposure_counts": [60]}],
        "total_exposures": {"control": 60, "test": 40},
        "holdout": {"id": 5, "key": "holdout-5", "total": 23, "days": [], "exposure_counts": []},
        "sample_ratio_mismatch": {"expected": {}, "p_value": 1e-12},
    }
    found = whole(None, exposures=exposures)
    shown = in_terminal(found)
    assert "control 60 (60.0%), test 40 (40.0%); sample ratio p < 0.0001" in shown
    assert "Held out: 23 (holdout-5), compared with nobody" in shown
    assert "<td>holdout-5 (held out, compared with nobody)</td><td>23</td>" in page(found)
    assert "asks for: p &lt; 0.0001." in page(found)
    assert document(found)["exposures"]["holdout"]["total"] == 23


@pytest.mark.parametrize(
    ("p_value", "text"),
    [
        (1e-9, "p < 0.0001"),
        (0.0123, "p = 0.012"),
        (0.0001, "p = 0.0001"),
        (0, "p < 0.0001"),
        (0.99, "p = 0.99"),
        (0.9901, "p > 0.99"),
        (1, "p > 0.99"),
    ],
)
def test_a_p_value_has_one_sign(p_value: float, text: str) -> None:
    assert p_text(p_value) == text


def test_a_chance_that_is_not_certain_does_not_read_as_if_it_were() -> None:
    texts = [percent_text(chance) for chance in (1.0, 0.99999, 0.9994, 0.5, 1e-6, 0.0)]
    assert texts == ["100.0%", "> 99.9%", "99.9%", "50.0%", "< 0.1%", "0.0%"]


def test_a_page_without_a_course_over_days_says_why_and_when() -> None:
    day = {"baseline": row("control"), "variant_results": [compared("a", [0.1, 0.3], 0.001)]}
    empty = {"baseline": row("control"), "variant_results": [compared("a", None, None)]}
    one = page(whole(None, days={"2026-03-01": day}))
    assert "from the second daily point on; so far there is 1." in one
    assert "at 02:00 UTC" in one
    assert "on no day enough was known" in page(whole(None, days={"2026-03-01": empty, "2026-03-02": empty}))
    several = page(whole(None, days={"2026-03-01": day, "2026-03-02": day}))
    assert "second daily point" not in several
    assert "Effect and interval at the end of each day" in several
