"""Results as one page that opens without a server and loads nothing from anywhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element, tostring

from hoglab.reports.plots import Bar, Curve, curves, element, forest
from hoglab.reports.report import Comparison, ExperimentReport, Group, MetricReport
from hoglab.statistics.numbers import MISSING, effect_text, interval_text, mean_text, number_text, p_text

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""The page's own Content-Security-Policy: no scripts, and nothing from elsewhere."""

STYLE = """
:root { color-scheme: light dark; --line: #d4d4d8; --dim: #71717a; --good: #15803d; --bad: #b91c1c; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { margin-bottom: 0; } h3 { margin: 2rem 0 .3rem; } .dim { color: var(--dim); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: right; }
th:first-child, td:first-child { text-align: left; }
.verdict { border-left: 6px solid var(--dim); padding: .5rem .8rem; margin: 1rem 0; }
.verdict.better { border-color: var(--good); color: inherit; } .verdict ul { margin: .3rem 0; }
.verdict.worse, .verdict.invalid { border-color: var(--bad); color: inherit; }
.verdict.mixed, .verdict.not_shown_safe { border-color: #d97706; }
.warning, .critical, .info { border-left: 4px solid var(--dim); padding: .3rem .8rem; margin: .5rem 0; }
.warning { border-color: #d97706; } .critical { border-color: #dc2626; }
.better { color: var(--good); } .worse { color: var(--bad); }
svg { width: 100%; height: auto; } svg text { font-size: 11px; fill: currentColor; }
.grid { stroke: var(--line); stroke-width: .6; } .zero { stroke: var(--dim); stroke-width: 1.4; }
.bar line { stroke: currentColor; stroke-width: 2; } .bar circle { fill: currentColor; }
summary { cursor: pointer; color: var(--dim); }
"""


def page(report: ExperimentReport) -> str:
    """Return the whole page, as text."""
    experiment = report.experiment
    head = element(
        "head",
        None,
        element("meta", {"charset": "utf-8"}),
        element("meta", {"http-equiv": "Content-Security-Policy", "content": POLICY}),
        element("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        element("title", None, f"{experiment['name']} · results"),
        element("style", None, STYLE),
    )
    body = element(
        "body", None, *_heading(report), *_verdict(report), *_warnings(report), *_exposures(report)
    )
    for primary, name in ((True, "Primary metrics"), (False, "Secondary metrics")):
        metrics = report.section(primary=primary)
        if metrics:
            body.append(element("h2", None, name))
        for metric in metrics:
            body.extend(_metric(report, metric))
    whole = element("html", {"lang": "en"}, head, body)
    return f"<!doctype html>\n{tostring(whole, encoding='unicode', method='html')}\n"


def _heading(report: ExperimentReport) -> Iterator[Element]:
    experiment = report.experiment
    began, ended = (str(experiment[name] or "")[:10] for name in ("start_date", "end_date"))
    since = f", {began} to {ended}" if ended else f" since {began}" if began else ""
    yield element("h1", None, str(experiment["name"]))
    yield element(
        "p",
        {"class": "dim"},
        f"Experiment {experiment['id']} on the flag {experiment['feature_flag_key']}, {experiment['status']}{since}. "
        f"{report.config.method.capitalize()} statistics, {report.level * 100:g}% intervals. "
        f"Computed {report.made_at:%Y-%m-%d %H:%M} UTC.",
    )
    yield element("p", {"class": "dim"}, " ".join(report.methods))
    if experiment.get("description"):
        yield element("p", None, str(experiment["description"]))


def _verdict(report: ExperimentReport) -> Iterator[Element]:
    """Yield the verdict with its next step, and what it rests on."""
    verdict = report.verdict
    if verdict is None:
        return
    said = element(
        "div",
        {"class": f"verdict {verdict['state']}"},
        element("strong", None, str(verdict["headline"])),
        f" {verdict['next_action']['text']}",
    )
    if not verdict["withholds_decisions"]:
        said.append(
            element(
                "ul",
                {"class": "dim"},
                *(element("li", None, str(reason["text"])) for reason in verdict["reasons"]),
            )
        )
    yield said


def _warnings(report: ExperimentReport) -> Iterator[Element]:
    for severity, message, advice in report.further_warnings:
        kind = severity if severity in ("critical", "warning") else "info"
        yield element("div", {"class": kind}, element("strong", None, message), f" {advice}")


def _exposures(report: ExperimentReport) -> Iterator[Element]:
    series = report.exposures.get("timeseries") or []
    if not series:
        return
    totals = report.exposed
    everybody = sum(totals.values()) or 1
    yield element("h2", None, "Exposed")
    rows = [(key, f"{count:,}", f"{count / everybody:.1%}") for key, count in totals.items()]
    if report.held_out is not None:
        key, people = report.held_out
        rows.append((f"{key} (held out, compared with nobody)", f"{people:,}", ""))
    yield _table(("Variant", "People", "Share"), rows)
    mismatch = report.exposures.get("sample_ratio_mismatch")
    if mismatch is not None:
        yield element(
            "p",
            {"class": "dim"},
            f"Test of these shares against those that the flag asks for: {p_text(mismatch['p_value'])}.",
        )
    variant_curves = [Curve(counts["variant"], counts["exposure_counts"]) for counts in series]
    if len(series[0]["days"]) > 1 and any(totals.values()):
        yield curves(series[0]["days"], variant_curves, number_text, "People exposed up to each day")


def _metric(report: ExperimentReport, metric: MetricReport) -> Iterator[Element]:
    yield element("h3", None, metric.title)
    aim = ", lower is better" if metric.wants_decrease else ""
    yield element("p", {"class": "dim"}, f"{metric.kind}{aim}")
    if metric.result is None:
        yield element("p", None, metric.error or "Not computed.")
        return
    yield _results(report, metric, metric.result)

    def label(effect: float) -> str:
        return effect_text(effect, relative=report.is_relative, is_share=metric.is_share)

    bars = [
        Bar(
            group.key,
            *group.interval,
            group.effect,
            interval_text(group.interval, relative=report.is_relative, is_share=metric.is_share),
            _direction(metric, group),
        )
        for group in metric.result.variants
        if group.interval is not None and group.effect is not None
    ]
    if bars:
        yield forest(bars, label)
    variant_curves = _by_day(metric)
    if metric.without_course is not None:
        yield element("p", {"class": "dim"}, metric.without_course)
    elif metric.days:
        yield curves(list(metric.days), variant_curves, label, "Effect and interval at the end of each day")
    for cell, comparison in metric.cells.items():
        yield element("h4", None, " · ".join(cell))
        yield _results(report, metric, comparison)
    yield _statistics(metric.result)


def _results(report: ExperimentReport, metric: MetricReport, comparison: Comparison) -> Element:
    certainty = "Chance to be better" if report.config.method == "bayesian" else "p-value"
    rows: list[tuple[str | Element, ...]] = []
    for group in comparison.groups:
        row: tuple[str | Element, ...] = (
            group.key,
            f"{group.size:,}",
            mean_text(group.mean, is_share=metric.is_share),
        )
        if group is comparison.baseline:
            rows.append((*row, "baseline", "", ""))
        elif group.interval is None or group.effect is None:
            rows.append((*row, MISSING, group.problem or "", ""))
        else:
            relative, is_share = report.is_relative, metric.is_share
            baseline = comparison.baseline.mean
            effect = effect_text(group.effect, relative=relative, is_share=is_share, baseline=baseline)
            shown = element("span", {"class": _direction(metric, group)}, effect)
            interval = interval_text(group.interval, relative=relative, is_share=is_share)
            rows.append((*row, shown, interval, metric.certainty(group)))
    value = metric.value_label[0].upper() + metric.value_label[1:]
    return _table(
        ("Variant", "People", value, "Effect", f"{report.level * 100:g}% interval", certainty), rows
    )


def _direction(metric: MetricReport, group: Group) -> str:
    return {True: "better", False: "worse", None: ""}[metric.is_better(group)]


def _by_day(metric: MetricReport) -> list[Curve]:
    days = list((metric.days or {}).values())
    keys = dict.fromkeys(group.key for day in days for group in day.variants)
    variant_curves = []
    for key in keys:
        groups = [
            next((variant_group for variant_group in day.variants if variant_group.key == key), None)
            for day in days
        ]
        intervals = [None if group is None else group.interval for group in groups]
        effects = [None if group is None else group.effect for group in groups]
        variant_curves.append(Curve(key, effects, intervals))
    return variant_curves


def _statistics(comparison: Comparison) -> Element:
    """Return the sufficient statistics, folded away: from them everything above can be computed again."""
    names = [
        name
        for name, value in comparison.baseline.row.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    rows = [(group.key, *(repr(group.row.get(name)) for name in names)) for group in comparison.groups]
    return element(
        "details",
        None,
        element("summary", None, "Sufficient statistics"),
        _table(("variant", *names), rows),
    )


def _table(columns: Sequence[str], rows: Sequence[Sequence[str | Element]]) -> Element:
    return element(
        "table",
        None,
        element("thead", None, element("tr", None, *(element("th", None, name) for name in columns))),
        element(
            "tbody",
            None,
            *(element("tr", None, *(element("td", None, cell) for cell in row)) for row in rows),
        ),
    )
