"""``hoglab experiment``: results, plans and simulations for people."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hoglab.cli.errors import OperatorError
from hoglab.cli.options import DataOption

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hoglab.cli.experiment_source import Source
    from hoglab.reports.report import ExperimentReport, MetricReport

experiment_app = typer.Typer(
    help="Results of experiments, beside a running server or without one.", no_args_is_help=True
)

IdArgument = Annotated[int, typer.Argument(metavar="ID", help="Id of the experiment.")]
ProjectOption = Annotated[int, typer.Option("--project", help="Id of the project.")]
HostOption = Annotated[
    str | None,
    typer.Option(
        "--host",
        metavar="URL",
        help="The running server (default: the data directory, or the server of it as `serve` here).",
        show_default=False,
    ),
]
KeyOption = Annotated[
    str | None,
    typer.Option(
        "--key",
        envvar="HOGLAB_API_KEY",
        help="A personal API key for it (default: one that is made in the data directory for the command).",
        show_default=False,
    ),
]


@experiment_app.callback()
def _experiment() -> None:
    pass


@experiment_app.command()
def results(
    experiment_id: IdArgument,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to",
            metavar="FILE",
            help="Write them here: .html (a page with plots), .json, or rows with the sufficient statistics as "
            ".csv, .parquet or .jsonl.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    project: ProjectOption = 1,
    host: HostOption = None,
    key: KeyOption = None,
    data: DataOption = None,
) -> None:
    """Show the results of an experiment: warnings first, then a table and the intervals."""
    from hoglab.cli.experiment_source import AnswerError, opened_source
    from hoglab.reports import files
    from hoglab.transfer.exporting import ExportError

    with opened_source(data, project, host=host, key=key) as source:
        try:
            report = _report(source, experiment_id, daily=to is not None and to.suffix == ".html")
        except AnswerError as error:
            raise OperatorError(f"experiment {experiment_id}: {error}") from error
    if to is not None:
        try:
            files.write(report, to)
        except ExportError as error:
            raise OperatorError(str(error)) from error
        typer.echo(f"{to}: {len(report.metrics)} metrics")
    elif as_json:
        typer.echo(json.dumps(files.document(report), indent=2, ensure_ascii=False))
    else:
        _print(report)


def _report(source: Source, experiment_id: int, *, daily: bool) -> ExperimentReport:
    """Everything about an experiment. Raises `AnswerError` when nothing can be said about it."""
    from hoglab.reports.report import ExperimentReport, metrics_of

    experiment = source.experiment(experiment_id)
    flag = {"key": experiment["feature_flag_key"] or ""}
    exposures = source.query(
        {"kind": "ExperimentExposureQuery", "experiment_id": experiment_id, "feature_flag": flag}
    )
    daily = daily and experiment["start_date"] is not None
    return ExperimentReport(
        experiment=experiment,
        findings=source.health(experiment_id)["findings"],
        exposures={
            name: exposures[name] for name in ("timeseries", "total_exposures", "sample_ratio_mismatch")
        },
        metrics=tuple(
            _metric(source, experiment_id, metric, name, primary=primary, daily=daily)
            for metric, primary, name in metrics_of(experiment)
        ),
        made_at=datetime.now(UTC),
    )


def _metric(
    source: Source, experiment_id: int, metric: Mapping[str, Any], name: str, *, primary: bool, daily: bool
) -> MetricReport:
    from hoglab.cli.experiment_source import AnswerError
    from hoglab.reports.report import is_comparable, metric_report

    if not is_comparable(metric):
        reason = f"{metric.get('kind')} is of the former engine: ask for it with POST …/query/"
        return metric_report(metric, name, primary=primary, error=reason)
    query = {"kind": "ExperimentQuery", "experiment_id": experiment_id, "metric": metric}
    try:
        result = source.query(query)
        days = source.series(experiment_id, metric)["timeseries"] if daily else None
    except AnswerError as error:
        return metric_report(metric, name, primary=primary, error=str(error))
    return metric_report(metric, name, primary=primary, result=result, days=days)


def _print(report: ExperimentReport) -> None:
    from rich.console import Console

    from hoglab.reports.terminal import report_lines

    console = Console()
    for part in report_lines(report):
        console.print(part)
