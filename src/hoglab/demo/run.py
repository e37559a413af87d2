"""The story of the demo, step by step."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from hoglab.demo.api import Api
from hoglab.demo.receiver import Receiver
from hoglab.demo.scenario import (
    BASELINE,
    DAYS,
    FLAG_KEY,
    PURCHASE,
    START_BEFORE,
    TREATMENT,
    Truth,
    population,
)
from hoglab.demo.server import ChildServer, RunningServer, Server, ServerError
from hoglab.demo.traffic import SentTraffic, send_users
from hoglab.reports.report import MetricReport, metric_report
from hoglab.reports.terminal import IntervalPlot, PlotRow, plot_rows, results_table
from hoglab.statistics import StatisticsConfig

SETTLE_TIMEOUT_S = 60.0
POLL_INTERVAL_S = 0.25
LEVEL = 0.95
"""Confidence level of the intervals: the experiment does not ask for another."""

FORWARD_PURCHASE = """\
let response := fetch(inputs.url, {
    'method': 'POST',
    'body': {
        'uuid': event.uuid,
        'amount': event.properties.amount,
        'email': person.properties.email
    }
})
if (response.status >= 400) {
    throw Error(f'the destination answered {response.status}')
}
"""

METRICS = [
    {
        "kind": "ExperimentMetric",
        "metric_type": "funnel",
        "name": "Purchase rate",
        "goal": "increase",
        "series": [{"kind": "EventsNode", "event": PURCHASE}],
    },
    {
        "kind": "ExperimentMetric",
        "metric_type": "mean",
        "name": "Revenue per user",
        "goal": "increase",
        "source": {"kind": "EventsNode", "event": PURCHASE, "math": "sum", "math_property": "amount"},
    },
]


class DemoError(Exception):
    """The demo cannot go on; the text is one line for the person at the terminal."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    users: int = 20_000
    host: str = "127.0.0.1"
    port: int = 8000
    data: Path | None = None  # None: a temporary directory that is removed at the end
    url: str | None = None  # of a running server; then none is started
    api_key: str = ""  # for that
    seed: int = 2
    threads: int = 4
    exit: bool = False  # stop after the results instead of serving on


@dataclass(frozen=True, slots=True)
class DemoVerdict:
    """Result of the demo, compared with what it knows to be true."""

    experiment_id: int
    intervals: list[PlotRow]
    users_expected: int
    users_counted: int
    buyers_expected: int
    buyers_counted: int
    deliveries_expected: int
    deliveries_received: int
    duplicates: int

    @property
    def is_complete(self) -> bool:
        """Whether all users, purchases and deliveries are there. That an interval misses the truth is chance."""
        return (
            self.users_counted == self.users_expected
            and self.buyers_counted == self.buyers_expected
            and self.deliveries_received == self.deliveries_expected
        )


def run_demo(options: DemoOptions, console: Console) -> bool:
    """Run the demo; return whether nothing was lost. Raises `DemoError`.

    Without ``options.exit`` a server that was started goes on serving until it is interrupted.
    """
    if options.url is not None:
        with Receiver() as receiver:
            try:
                running = RunningServer(options.url, options.api_key)
                return _run_story(options, running, receiver, console).is_complete
            except (ServerError, httpx.HTTPError) as error:
                raise DemoError(str(error)) from error
    with _directory(options.data) as data, Receiver() as receiver:
        server = ChildServer(
            data=data,
            host=options.host,
            port=options.port,
            environment={
                "HOGLAB_FETCH_ALLOW_CIDRS": "127.0.0.1/32",  # the receiver is on this machine
                "HOGLAB_RESULTS_REFRESH_S": "1",
                "HOGLAB_ACCESS_LOG": "false",
            },
        )
        try:
            console.print(f"Starting a server on [bold]{server.url}[/bold] with the data directory {data}")
            server.start()
            verdict = _run_story(options, server, receiver, console)
            if not options.exit:
                _serve_on(server, verdict.experiment_id, console)
        except ServerError as error:
            raise DemoError(str(error)) from error
        except httpx.HTTPError as error:
            raise DemoError(
                f"{error} ({server.last_line()})" if not server.alive() else str(error)
            ) from error
        finally:
            server.close()
    return verdict.is_complete


@contextmanager
def _directory(chosen: Path | None) -> Iterator[Path]:
    if chosen is None:
        with tempfile.TemporaryDirectory(prefix="hoglab-demo-") as temporary:
            yield Path(temporary)
        return
    if chosen.is_dir() and any(chosen.iterdir()):
        raise DemoError(
            f"{chosen} is not empty: the demo needs a new directory, so that its numbers are its own"
        )
    yield chosen


def _run_story(options: DemoOptions, server: Server, receiver: Receiver, console: Console) -> DemoVerdict:
    truth, now = Truth(), datetime.now(UTC)
    api = Api(server.url, server.api_key)
    function = api.create_hog_function(
        {
            "type": "destination",
            "name": "Purchases to the demo's receiver",
            "enabled": True,
            "hog": FORWARD_PURCHASE,
            "inputs_schema": [{"key": "url", "type": "string", "label": "URL", "required": True}],
            "inputs": {"url": {"value": receiver.url}},
            "filters": {"events": [{"id": PURCHASE, "name": PURCHASE, "type": "events", "order": 0}]},
        }
    )
    experiment = api.create_experiment(
        {
            "name": "Demo: new checkout",
            "feature_flag_key": FLAG_KEY,
            "start_date": (now - START_BEFORE).isoformat(),
            "running_time_calculation": {"recommended_running_time": DAYS},
            "metrics": METRICS,
        }
    )
    console.print(
        f"Created experiment {experiment['id']}, which began {START_BEFORE.days} days ago, on the flag "
        f"[bold]{FLAG_KEY}[/bold] and the destination {function['id']}.\n"
        "The truth, which the server does not know: "
        f"{truth.baseline_rate:.0%} of [bold]{BASELINE}[/bold] buy, "
        f"[bold]{TREATMENT}[/bold] buys {truth.relative_lift:+.0%} more often.\n"
    )
    progress = Progress(
        TextColumn("{task.description:<34}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )
    with progress:
        users_bar = progress.add_task("Users, through the PostHog SDK", total=options.users)
        sent = send_users(
            population(options.users, options.seed),
            truth,
            url=server.url,
            project_token=server.project_token,
            between=(now - START_BEFORE, now),
            threads=options.threads,
            on_user=lambda: progress.advance(users_bar),
        )
        _await_deliveries(receiver, sent, server, progress)
        results = _await_results(api, experiment, sent, server, progress)

    metrics = [
        metric_report(metric, metric["name"], primary=True, config=StatisticsConfig(), result=result)
        for metric, result in results
    ]
    intervals = [row for metric in metrics for row in plot_rows(metric, truth.relative_lift)]
    delivered = receiver.delivered()
    verdict = DemoVerdict(
        experiment_id=experiment["id"],
        intervals=intervals,
        users_expected=options.users,
        users_counted=_summed(results[0][1], "number_of_samples"),
        buyers_expected=len(sent.purchases),
        buyers_counted=_summed(results[0][1], "sum"),
        deliveries_expected=len(sent.purchases),
        deliveries_received=len(delivered.keys() & sent.purchases.keys()),
        duplicates=delivered.total() - len(delivered),
    )
    _print_verdict(verdict, truth, metrics, sent, console)
    _print_next_steps(server, experiment, function, console)
    api.close()
    return verdict


def _await_deliveries(receiver: Receiver, sent: SentTraffic, server: Server, progress: Progress) -> None:
    bar = progress.add_task("Purchases delivered", total=len(sent.purchases))
    _poll(
        lambda: len(receiver.delivered().keys() & sent.purchases.keys()),
        len(sent.purchases),
        bar,
        server,
        progress,
    )


def _await_results(
    api: Api, experiment: dict[str, Any], sent: SentTraffic, server: Server, progress: Progress
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    bar = progress.add_task("Purchases in the results", total=len(sent.purchases))
    latest: list[tuple[dict[str, Any], dict[str, Any]]] = []
    errors: dict[str, str] = {}

    def counted() -> int:
        newest = []
        for metric in experiment["metrics"]:
            series = api.timeseries(experiment["id"], metric)
            points = [point for point in series["timeseries"].values() if point is not None]
            if not points:
                errors.update(series["errors"] or {})
                return 0
            newest.append((metric, points[-1]))
        latest[:] = newest
        return _summed(newest[0][1], "sum")

    _poll(counted, len(sent.purchases), bar, server, progress)
    if not latest:
        reasons = "; ".join(errors.values())
        raise DemoError(f"the server computed no results in time{': ' + reasons if reasons else ''}")
    return latest


def _poll(count: Callable[[], int], goal: int, bar: TaskID, server: Server, progress: Progress) -> None:
    """Show ``count`` until it reaches ``goal``, or until nothing has moved for the settling time."""
    best, deadline = -1, time.monotonic() + SETTLE_TIMEOUT_S
    while best < goal and time.monotonic() < deadline:
        if not server.alive():
            raise DemoError(f"the server ended: {server.last_line()}")
        now = count()
        if now > best:
            best, deadline = now, time.monotonic() + SETTLE_TIMEOUT_S
        progress.update(bar, completed=now)
        if best < goal:
            time.sleep(POLL_INTERVAL_S)


_MARKS = {True: "[green]✓[/green] ", False: "[red]✗[/red] ", None: "[yellow]○[/yellow] "}


def _summed(result: dict[str, Any], field: str) -> int:
    """Return a field of a metric's result over all variants."""
    return sum(row[field] for row in [result["baseline"], *result["variant_results"]])


def _print_verdict(
    verdict: DemoVerdict, truth: Truth, metrics: Sequence[MetricReport], sent: SentTraffic, console: Console
) -> None:
    console.print()
    console.print(results_table(metrics, "Results", LEVEL, relative=True))
    console.print()
    console.print(IntervalPlot(verdict.intervals))
    console.print()
    split = ", ".join(f"{count:,} saw {variant}" for variant, count in sorted(sent.variants.items()))
    for good, text in (
        (
            verdict.users_counted == verdict.users_expected,
            f"{verdict.users_counted:,} of {verdict.users_expected:,} users counted ({split})",
        ),
        (
            verdict.buyers_counted == verdict.buyers_expected,
            f"{verdict.buyers_counted:,} of {verdict.buyers_expected:,} purchases counted",
        ),
        _truth_line(verdict.intervals, truth),
        (
            verdict.deliveries_received == verdict.deliveries_expected,
            f"{verdict.deliveries_received:,} of {verdict.deliveries_expected:,} purchases delivered"
            + (f" ({verdict.duplicates} more than once)" if verdict.duplicates else ", each once"),
        ),
    ):
        console.print(_MARKS[good] + text)


def _truth_line(intervals: Sequence[PlotRow], truth: Truth) -> tuple[bool | None, str]:
    """Return whether intervals contain the true lift, and a sentence; None where that says nothing of the server."""
    lift = f"the true lift of {truth.relative_lift:+.0%} is"
    if not intervals:
        return None, "there is no interval yet: it takes more users (--users)"
    if all(estimate.covers_truth for estimate in intervals):
        return True, f"{lift} inside every interval"
    return None, f"{lift} outside an interval, as happens to {1 - LEVEL:.0%} of intervals"


def _print_next_steps(
    server: Server, experiment: dict[str, Any], function: dict[str, Any], console: Console
) -> None:
    key = "$HOGLAB_API_KEY" if isinstance(server, RunningServer) else server.api_key
    console.print(
        f"""
Look around:
  export URL={server.url} KEY={key}
  curl -H "Authorization: Bearer $KEY" $URL/api/projects/1/experiments/{experiment["id"]}/
  curl -H "Authorization: Bearer $KEY" $URL/api/projects/1/hog_functions/{function["id"]}/logs/
  SDKs: project token {server.project_token}, host {server.url}""",
        highlight=False,
        soft_wrap=True,
    )


def _serve_on(server: ChildServer, experiment_id: int, console: Console) -> None:
    link = server.login_line(f"/p/1/experiments/{experiment_id}")
    console.print(f"\n{link}", highlight=False, markup=False, soft_wrap=True)
    console.print(f"\nStill serving on [bold]{server.url}[/bold]. Press Ctrl-C to stop.")
    try:
        status = server.wait()
    except KeyboardInterrupt:
        console.print("Stopping.")
        return
    raise DemoError(f"the server ended with status {status}: {server.last_line()}")
