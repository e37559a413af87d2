"""``hoglab experiment``: results, plans and simulations for people."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hoglab.cli.errors import OperatorError
from hoglab.cli.options import DataOption, JsonOption, ProjectOption, host_option
from hoglab.terminal import echo, plain_console

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager

    from rich.console import RenderableType

    from hoglab.cli.experiment.source import Source
    from hoglab.reports.report import ExperimentReport, MetricReport
    from hoglab.statistics import StatisticsConfig

experiment_app = typer.Typer(
    help="Results of experiments, beside a running server or without one.", no_args_is_help=True
)

IdArgument = Annotated[int, typer.Argument(metavar="ID", help="Id of the experiment.")]
HostOption = Annotated[
    str | None,
    host_option("The running server (default: the data directory, or the server of it as `serve` here)."),
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


def _opened(
    data: Path | None, project: int, host: str | None, key: str | None
) -> AbstractContextManager[Source]:
    from hoglab.cli.experiment.source import opened_source

    return opened_source(data, project, host=host, key=key)


@experiment_app.callback()
def _experiment() -> None:
    pass


@experiment_app.command("list")
def list_experiments(
    as_json: JsonOption = False,
    project: ProjectOption = 1,
    host: HostOption = None,
    key: KeyOption = None,
    data: DataOption = None,
) -> None:
    """List the experiments of a project that are not archived, the newest first."""
    from hoglab.reports.tables import light_table, whole

    with _opened(data, project, host, key) as source:
        experiments = list(source.experiments())
    if as_json:
        echo(json.dumps(experiments, indent=2, ensure_ascii=False))
        return
    table = light_table(None, whole("Id"), "Name", "Flag", "Status", whole("Start"), whole("End"))
    for experiment in experiments:
        days = ((experiment[name] or "")[: len("2026-01-31")] for name in ("start_date", "end_date"))
        flag, status = experiment["feature_flag_key"], experiment["status"]
        table.add_row(str(experiment["id"]), experiment["name"], flag, status, *days)
    plain_console().print(table)


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
    as_json: JsonOption = False,
    project: ProjectOption = 1,
    host: HostOption = None,
    key: KeyOption = None,
    data: DataOption = None,
) -> None:
    """Show the results of an experiment: warnings first, then a table and the intervals."""
    from hoglab.cli.experiment.source import AnswerError
    from hoglab.reports import files
    from hoglab.reports.terminal import report_lines
    from hoglab.transfer.exporting import ExportError

    with _opened(data, project, host, key) as source:
        try:
            report = _report(source, experiment_id, daily=to is not None and to.suffix == ".html")
        except AnswerError as error:
            raise OperatorError(f"experiment {experiment_id}: {error}") from error
    if to is not None:
        try:
            files.write(report, to)
        except ExportError as error:
            raise OperatorError(str(error)) from error
        echo(f"{to}: {len(report.metrics)} metrics")
    elif as_json:
        echo(json.dumps(files.document(report), indent=2, ensure_ascii=False))
    else:
        _print(report_lines(report))


MetricOption = Annotated[
    str | None,
    typer.Option(
        "--metric", help="Name or uuid of one metric (default: the primary ones).", show_default=False
    ),
]
DaysOption = Annotated[int, typer.Option("--days", min=1, help="Days of history to look at.")]
EventOption = Annotated[
    str | None,
    typer.Option(
        "--event",
        help="Event by which the experiment will meet people (default: that of its custom exposure, or any).",
        show_default=False,
    ),
]


@experiment_app.command()
def plan(
    experiment_id: IdArgument,
    metric: MetricOption = None,
    effect: Annotated[
        list[float] | None,
        typer.Option("--effect", help="An effect in percent; may be repeated.", show_default=False),
    ] = None,
    power: Annotated[float, typer.Option("--power", min=1, max=99, help="Power in percent.")] = 80,
    days: DaysOption = 28,
    event: EventOption = None,
    as_json: JsonOption = False,
    project: ProjectOption = 1,
    host: HostOption = None,
    key: KeyOption = None,
    data: DataOption = None,
) -> None:
    """Say how many people and days an experiment takes, from the past behaviour of the project's people."""
    from hoglab.reports.planning import plan_lines

    asked = {
        "kind": "ExperimentPlanQuery",
        "effects": None if not effect else [percent / 100 for percent in effect],
        "power": power / 100,
    }
    with _opened(data, project, host, key) as source:
        answers = _foreseen(source, experiment_id, metric, asked | _history(days, event))
    _show(answers, plan_lines, as_json=as_json)


@experiment_app.command()
def simulate(
    experiment_id: IdArgument,
    metric: MetricOption = None,
    effect: Annotated[float, typer.Option("--effect", help="The effect to find, in percent.")] = 10,
    experiments: Annotated[
        int, typer.Option("--experiments", min=1, help="Number of experiments to simulate.")
    ] = 1000,
    looks: Annotated[int, typer.Option("--looks", min=1, help="Number of looks at each experiment.")] = 10,
    people: Annotated[
        int | None,
        typer.Option("--people", help="People of each (default: as many as there were).", show_default=False),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The same seed gives the same answer.")] = 1,
    days: DaysOption = 28,
    event: EventOption = None,
    as_json: JsonOption = False,
    project: ProjectOption = 1,
    host: HostOption = None,
    key: KeyOption = None,
    data: DataOption = None,
) -> None:
    """Simulate experiments on the project's people: how often each method is fooled, and what it finds."""
    from hoglab.reports.planning import simulation_lines

    asked = {
        "kind": "ExperimentSimulationQuery",
        "effect": effect / 100,
        "experiments": experiments,
        "looks": looks,
        "people": people,
        "seed": seed,
    }
    with _opened(data, project, host, key) as source:
        answers = _foreseen(source, experiment_id, metric, asked | _history(days, event))
    _show(answers, simulation_lines, as_json=as_json)


def _history(days: int, event: str | None) -> dict[str, Any]:
    exposure = None if event is None else {"kind": "EventsNode", "event": event}
    return {"history_days": days, "exposure": exposure}


def _foreseen(
    source: Source, experiment_id: int, wanted: str | None, asked: Mapping[str, Any]
) -> list[tuple[str, dict[str, Any]]]:
    """Return the answers for the metrics of an experiment, with their names.

    Metrics without an answer are listed on stderr. Raises `OperatorError` when there is none at all.
    """
    from hoglab.analysis.definitions import metrics_of
    from hoglab.cli.experiment.source import AnswerError
    from hoglab.reports.report import is_comparable

    try:
        experiment = source.experiment(experiment_id)
        metrics = [
            (name, metric)
            for metric, primary, name in metrics_of(experiment)
            if is_comparable(metric) and (primary if wanted is None else wanted in (name, metric.get("uuid")))
        ]
        if not metrics:
            missing = "no primary metric" if wanted is None else f"no metric {wanted}"
            raise OperatorError(f"experiment {experiment_id} has {missing}")
    except AnswerError as error:
        raise OperatorError(f"experiment {experiment_id}: {error}") from error
    answers, failed = [], []
    for name, metric in metrics:
        try:
            answers.append((name, source.query({**asked, "experiment_id": experiment_id, "metric": metric})))
        except AnswerError as error:
            failed.append(f"experiment {experiment_id}, metric “{name}”: {error}")
    if not answers:
        raise OperatorError("; ".join(failed))
    for reason in failed:
        echo(f"hoglab: {reason}", err=True)
    return answers


def _show(
    answers: list[tuple[str, dict[str, Any]]],
    lines: Callable[[str, Mapping[str, Any]], Iterable[RenderableType]],
    *,
    as_json: bool,
) -> None:
    if as_json:
        echo(json.dumps([{"metric": name, **answer} for name, answer in answers], indent=2))
    else:
        for number, (name, answer) in enumerate(answers):
            _print([""] if number else [])
            _print(lines(name, answer))


def _report(source: Source, experiment_id: int, *, daily: bool) -> ExperimentReport:
    """Return the whole report of an experiment. Raises `AnswerError` when nothing can be reported."""
    from hoglab.analysis.definitions import metrics_of
    from hoglab.reports.report import ExperimentReport
    from hoglab.statistics import resolve_config

    experiment = source.experiment(experiment_id)
    config = resolve_config(experiment["stats_config"], source.defaults())
    results = source.results(experiment_id)
    definitions = {metric.get("uuid"): metric for metric, _, _ in metrics_of(experiment)}
    verdict = results["verdict"]
    withheld = _withheld(verdict)
    daily = daily and experiment["start_date"] is not None
    return ExperimentReport(
        experiment=experiment,
        config=config,
        findings=results["health"]["findings"] if results["health"] is not None else (),
        exposures=_exposures(results["exposures"]),
        metrics=tuple(
            _metric(
                source,
                experiment_id,
                definitions.get(entry["uuid"], entry),
                entry,
                config,
                daily=daily,
                withheld=withheld is None or entry["uuid"] in withheld,
            )
            for entry in results["metrics"]
        ),
        made_at=datetime.now(UTC),
        verdict=verdict,
    )


def _withheld(verdict: Mapping[str, Any] | None) -> frozenset[str] | None:
    """Return the metrics, by uuid, of which nothing may be marked as significant; None: that is so of all."""
    if verdict is None:
        return frozenset()
    if verdict["withholds_decisions"]:
        return None
    return frozenset(
        metric["metric_uuid"]
        for metric in verdict["metrics"]
        if any(variant["decision"] == "withheld" for variant in metric["variants"])
    )


def _exposures(exposures: Mapping[str, Any] | None) -> dict[str, Any]:
    names = ("timeseries", "total_exposures", "holdout", "sample_ratio_mismatch", "phases")
    return {} if exposures is None else {name: exposures[name] for name in names}


def _metric(
    source: Source,
    experiment_id: int,
    metric: Mapping[str, Any],
    entry: Mapping[str, Any],
    config: StatisticsConfig,
    *,
    daily: bool,
    withheld: bool,
) -> MetricReport:
    """Return a metric with its result, as the answer has it, and with its days where they are wanted."""
    from hoglab.cli.experiment.source import AnswerError
    from hoglab.reports.report import metric_report

    days, error = None, entry["error"] if entry["result"] is None else None
    if entry["status"] == "pending" and entry["result"] is None:
        error = "it is still being computed"
    if daily and entry["result"] is not None:
        try:
            days = source.series(experiment_id, metric)["timeseries"]
        except AnswerError as failed:
            error = str(failed)
    return metric_report(
        metric,
        entry["name"],
        primary=entry["is_primary"],
        config=config,
        result=entry["result"],
        error=error,
        days=days,
        withheld=withheld,
    )


def _print(parts: Iterable[RenderableType]) -> None:

    console = plain_console()
    for part in parts:
        console.print(part)
