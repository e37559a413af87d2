"""Results and their sufficient statistics as files: one row for each metric, variant and cell of breakdowns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import inf, isfinite
from pathlib import Path
from typing import Any

from hoglab.reports.html import page
from hoglab.reports.report import Comparison, ExperimentReport, MetricReport
from hoglab.transfer.exporting import ExportError, whole_file, write_rows

SUFFICIENT = {
    "number_of_samples": "BIGINT",
    "sum": "DOUBLE",
    "sum_squares": "DOUBLE",
    "denominator_sum": "DOUBLE",
    "denominator_sum_squares": "DOUBLE",
    "numerator_denominator_sum_product": "DOUBLE",
    "covariate_sum": "DOUBLE",
    "covariate_sum_squares": "DOUBLE",
    "covariate_sum_product": "DOUBLE",
    "step_counts": "BIGINT[]",
    "quantile_level": "DOUBLE",
    "quantile": "DOUBLE",
    "quantile_lower": "DOUBLE",
    "quantile_upper": "DOUBLE",
    "largest_tie": "BIGINT",
    "cluster_factor": "DOUBLE",
}
"""The columns from which statistics can be computed again, with their types."""
COLUMNS = {
    "experiment_id": "BIGINT",
    "metric_uuid": "VARCHAR",
    "metric": "VARCHAR",
    "metric_type": "VARCHAR",
    "is_primary": "BOOLEAN",
    "breakdown": "VARCHAR[]",
    "variant": "VARCHAR",
    "is_baseline": "BOOLEAN",
    **SUFFICIENT,
    "value": "DOUBLE",
    "value_label": "VARCHAR",
    "method": "VARCHAR",
    "difference_type": "VARCHAR",
    "level": "DOUBLE",
    "effect": "DOUBLE",
    "interval_lower": "DOUBLE",
    "interval_upper": "DOUBLE",
    "unbounded_reason": "VARCHAR",
    "chance_to_win": "DOUBLE",
    "p_value": "DOUBLE",
    "adjusted_p_value": "DOUBLE",
    "significant": "BOOLEAN",
    "decision": "VARCHAR",
    "verdict": "VARCHAR",
    "validation_failures": "VARCHAR[]",
    "computed_at": "TIMESTAMP",
}
"""Every column of the rows, in order."""


def write(report: ExperimentReport, target: Path) -> None:
    """Write a report in the form that the name of the file asks for.

    ``.html``, ``.json``, or rows as ``.csv``, ``.parquet`` or ``.jsonl``. Raises
    `hoglab.transfer.exporting.ExportError`.
    """
    match target.suffix:
        case ".html":
            _write_text(target, page(report))
        case ".json":
            _write_text(target, json.dumps(document(report), indent=2, ensure_ascii=False) + "\n")
        case _:
            write_rows(target, COLUMNS, rows(report))


def document(report: ExperimentReport) -> dict[str, Any]:
    """Return the whole report as JSON: what endangers the experiment, who saw it, and the rows of its metrics."""
    experiment = report.experiment
    names = ("id", "name", "status", "feature_flag_key", "start_date", "end_date", "stats_config")
    return {
        "experiment": {name: experiment[name] for name in names},
        "warnings": [
            {"severity": severity, "message": message, "advice": advice}
            for severity, message, advice in report.warnings
        ],
        "verdict": report.verdict,
        "exposures": report.exposures,
        "rows": list(rows(report)),
    }


def rows(report: ExperimentReport) -> Iterator[dict[str, Any]]:
    """Yield the rows of all metrics that have a result."""
    for metric in report.metrics:
        if metric.result is not None:
            yield from _rows(report, metric, metric.result, None)
        for cell, comparison in metric.cells.items():
            yield from _rows(report, metric, comparison, list(cell))


def _rows(
    report: ExperimentReport, metric: MetricReport, comparison: Comparison, cell: list[str] | None
) -> Iterator[dict[str, Any]]:
    config = report.config
    for group in comparison.groups:
        is_baseline = group is comparison.baseline
        lower, upper = (bound if isfinite(bound) else None for bound in group.interval or (inf, inf))
        yield {
            "experiment_id": report.experiment["id"],
            "metric_uuid": metric.uuid,
            "metric": metric.name,
            "metric_type": metric.kind,
            "is_primary": metric.is_primary,
            "breakdown": cell,
            "variant": group.key,
            "is_baseline": is_baseline,
            **{name: group.row.get(name) for name in SUFFICIENT},
            "value": group.mean,
            "value_label": metric.value_label,
            "method": str(config.method),
            "difference_type": str(config.inference_config.difference_type),
            "level": report.level,
            "effect": group.effect,
            "interval_lower": lower,
            "interval_upper": upper,
            "unbounded_reason": group.row.get("unbounded_reason"),
            "chance_to_win": group.chance_to_win,
            "p_value": group.row.get("p_value"),
            "adjusted_p_value": group.row.get("adjusted_p_value"),
            # Numbers stay; whether they decide anything is withheld while something critical is wrong.
            "significant": None if is_baseline or metric.withheld else group.significant,
            "decision": None if cell is not None else report.decision(metric, group),
            "verdict": None if report.verdict is None else report.verdict["state"],
            "validation_failures": list(group.row["validation_failures"]),
            "computed_at": report.made_at.replace(tzinfo=None).isoformat(),
        }


def _write_text(target: Path, text: str) -> None:
    try:
        with whole_file(target) as draft:
            draft.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ExportError(f"{target} was not written: {error.strerror or error}") from error
