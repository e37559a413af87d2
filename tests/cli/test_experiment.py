"""``hoglab experiment``: every command really run, on a directory alone and beside its server."""

from __future__ import annotations

import csv
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pytest
from tests.analysis.events import Event
from tests.analysis.lab import PURCHASES, REVENUE, Lab, bought, exposed
from tests.conftest import free_port
from tests.forked import ForkedServer

from hoglab.analysis.incremental.aggregate_cache import MIN_EVENTS, AggregateCache
from hoglab.analysis.incremental.cache_tables import RefreshWork
from hoglab.analysis.incremental.materialization import Materialization
from hoglab.app import Hoglab
from hoglab.cli import main
from hoglab.cli.accounts.opening import opened_accounts
from hoglab.demo.server import ChildServer
from hoglab.settings import Settings
from hoglab.statistics import (
    FrequentistConfig,
    Proportion,
    SampleMean,
    StatisticsConfig,
    compare,
    sample_size_for,
)

START = datetime(2026, 3, 1, tzinfo=UTC)
END = datetime(2026, 3, 6, tzinfo=UTC)
PEOPLE = 200


class Ended(NamedTuple):
    """What a command left behind."""

    status: int
    stdout: str
    stderr: str


Command = Callable[..., Ended]


@pytest.fixture
def hoglab(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command in this process, which is quicker than in one of its own."""

    def run(*arguments: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["hoglab", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", "200")
        monkeypatch.setattr("os._exit", sys.exit)  # a command that fails ends its process at once
        capsys.readouterr()
        status = 0
        try:
            main()
        except SystemExit as left:
            status = int(left.code or 0)
        return Ended(status, *capsys.readouterr())

    return run


@pytest.fixture
def done(hoglab: Command) -> Callable[..., str]:
    """What a command that succeeds prints."""

    def run(*arguments: object) -> str:
        ended = hoglab(*arguments)
        assert ended.status == 0, ended.stderr
        assert ended.stderr == ""
        return ended.stdout

    return run


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a stopped experiment: of the test variant more people buy, and for the same amounts."""
    path = tmp_path_factory.mktemp("experiment") / "data"
    path.mkdir(mode=0o700)
    with closing(Lab(path)) as lab:
        lab.experiment(
            name="Checkout & <more>",
            start_date=START.isoformat(),
            end_date=END.isoformat(),
            stats_config={"method": "frequentist"},
            metrics=[REVENUE, PURCHASES | {"goal": "decrease"}],
            metrics_secondary=[
                REVENUE | {"name": "By plan", "breakdownFilter": {"breakdowns": [{"property": "$browser"}]}},
                REVENUE | {"name": "Never", "source": {"kind": "EventsNode", "event": "never"}},
            ],
        )
        events = []
        for number in range(2 * PEOPLE):
            variant = ("control", "test")[number % 2]
            seen = START + timedelta(minutes=17 * number)
            events.append(exposed(f"p{number}", variant, seen))
            if number % 10 < (4 if variant == "control" else 7):
                events.append(bought(f"p{number}", seen + timedelta(minutes=1), 10 + number % 7))
        lab.send(events)
    return path


def copy_for_a_server(data: Path, copy: Path) -> None:
    """Copy a directory that a `Lab` made, with the files beside that a server keeps."""
    shutil.copytree(data, copy)
    hoglab = Hoglab.open(Settings(data=copy), accept_loss=True)
    hoglab.start()
    hoglab.stop()


@pytest.fixture(scope="module")
def server(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChildServer]:
    """A server on a copy of the directory."""
    copy = tmp_path_factory.mktemp("served") / "data"
    copy_for_a_server(data, copy)
    environment = {"HOGLAB_ACCESS_LOG": "false"}
    found = ForkedServer(data=copy, host="127.0.0.1", port=free_port(), environment=environment)
    found.start()
    yield found
    found.close()


@pytest.fixture(params=["alone", "beside its server"])
def place(request: pytest.FixtureRequest, data: Path) -> list[object]:
    """Options of a directory, without and with a server on it."""
    if request.param == "alone":
        return ["--data", data]
    server: ChildServer = request.getfixturevalue("server")
    return ["--data", server.data, "--host", server.url]


Done = Callable[..., str]


def test_experiments_are_listed(done: Done, place: list[object]) -> None:
    shown = done("experiment", "list", *place)
    assert [shown.count(text) for text in ("Checkout & <more>", "stopped", "2026-03-01", "2026-03-06")] == [
        1
    ] * 4
    [experiment] = json.loads(done("experiment", "list", "--json", *place))
    assert (experiment["id"], experiment["name"]) == (1, "Checkout & <more>")


def test_more_experiments_than_a_page_has_are_listed(done: Done, tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.mkdir(mode=0o700)
    with closing(Lab(path)) as lab:
        for number in range(5):
            lab.experiment(name=f"experiment {number}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hoglab.cli.experiment.source.PAGE", 2)
        listed = json.loads(done("experiment", "list", "--json", "--data", path))
    assert sorted(experiment["name"] for experiment in listed) == [
        f"experiment {number}" for number in range(5)
    ]


def test_the_server_is_that_of_the_variable_unless_an_option_names_it(
    done: Done, hoglab: Command, server: ChildServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOGLAB_URL", server.url)
    assert "Checkout & <more>" in done("experiment", "results", 1, "--data", server.data)
    nobody = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setenv("HOGLAB_URL", nobody)
    assert "Checkout & <more>" in done(
        "experiment", "results", 1, "--data", server.data, "--host", server.url
    )
    refused = hoglab("functions", "list", "--key", "phx_x")
    assert refused.status == 1
    assert nobody in refused.stderr


def test_results_are_shown_warnings_first(done: Done, place: list[object]) -> None:
    shown = done("experiment", "results", 1, *place)
    assert "Checkout & <more> (experiment 1)" in shown
    warning = shown.index("“Never” has no data")
    assert warning < shown.index("Primary metrics") < shown.index("Secondary metrics")
    assert "Exposed: control 200 (50.0%), test 200 (50.0%)" in shown
    assert (
        "baseline: its value is zero, so there is no relative change" in shown
    )  # the reason in the row of the metric without events
    plotted = [line for line in shown.splitlines() if "├" in line and "●" in line]
    assert [line.split(" · ")[0].strip() for line in plotted] == ["Revenue", "Purchase rate", "By plan"]
    assert shown.count("p < 0.0001 *") == 3  # the rate, and the same metric twice, once broken down


def test_a_second_look_at_a_directory_alone_reads_no_events(
    done: Done, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the server keeps of events is kept between commands too."""
    with closing(Lab(tmp_path)) as lab:
        lab.experiment(start_date=START.isoformat(), end_date=END.isoformat(), metrics=[REVENUE, PURCHASES])
        noise = [Event(f"n{number % 500}", START, "page viewed") for number in range(MIN_EVENTS)]
        lab.send([*noise, *(exposed(f"p{n}", ("control", "test")[n % 2], START) for n in range(200))])
        lab.send([bought(f"p{number}", START, 10 + number) for number in range(100)])
    works: list[RefreshWork] = []
    rows = AggregateCache.rows

    def watched(state: AggregateCache, kept: Materialization) -> Any:
        found = rows(state, kept)
        assert found is not None, "it was answered from what is kept"
        works.append(state.last)
        return found

    monkeypatch.setattr(AggregateCache, "rows", watched)

    def look() -> tuple[list[dict[str, Any]], int, int]:
        works.clear()
        shown = json.loads(done("experiment", "results", 1, "--json", "--data", tmp_path))["rows"]
        for row in shown:
            del row["computed_at"]
        return shown, sum(work.events for work in works), sum(work.entities for work in works)

    first, events, _ = look()
    assert events >= MIN_EVENTS
    assert any(work.rebuilt for work in works)
    second, events, entities = look()
    assert works
    assert (events, entities) == (0, 0)
    assert not any(work.rebuilt for work in works)
    assert first == second
    with closing(Lab(tmp_path)) as lab:
        lab.send([bought("p1", START + timedelta(hours=1), 5)])
    third, events, entities = look()
    assert 1 <= events <= len(works) + 1, "the new event, once for each log that it is in"
    assert entities <= len(works)
    assert third != second


def test_a_metric_that_cannot_be_computed_is_said_once_and_nowhere_else(done: Done, tmp_path: Path) -> None:
    with closing(Lab(tmp_path)) as lab:
        made = lab.experiment(start_date=START.isoformat(), end_date=END.isoformat())
        members = [{"key": "id", "value": 77, "type": "cohort", "operator": "in"}]
        lost = REVENUE | {"name": "Lost", "source": REVENUE["source"] | {"properties": members}}
        lab.store_metrics(made, [lost])
        lab.send([exposed(f"p{number}", ("control", "test")[number % 2], START) for number in range(100)])
        lab.send([bought("p1", START, 5)])
    found = json.loads(done("experiment", "results", 1, "--json", "--data", tmp_path))
    assert [warning["message"] for warning in found["warnings"] if "Lost" in warning["message"]] == [
        "The metric “Lost” cannot be computed: source: id: cohort 77 does not exist."
    ]
    shown = done("experiment", "results", 1, "--data", tmp_path)
    assert shown.count("“Lost”") == 1
    assert "results_failed" not in shown


def test_a_metric_that_nothing_can_be_foreseen_of_holds_up_none(hoglab: Command, tmp_path: Path) -> None:
    never = REVENUE | {"name": "Never", "source": {"kind": "EventsNode", "event": "never"}}
    now = datetime.now(UTC)
    with closing(Lab(tmp_path)) as lab:
        lab.experiment(start_date=(now - timedelta(days=9)).isoformat(), metrics=[never, REVENUE])
        people = [f"p{number}" for number in range(100)]
        lab.send([bought(person, now - timedelta(days=8), n) for n, person in enumerate(people)])
    ended = hoglab("experiment", "simulate", 1, "--experiments", 20, "--json", "--data", tmp_path)
    assert (ended.status, [each["metric"] for each in json.loads(ended.stdout)]) == (0, ["Revenue"])
    assert ended.stderr.startswith("hoglab: experiment 1, metric “Never”: ")
    alone = hoglab("experiment", "simulate", 1, "--metric", "Never", "--data", tmp_path)
    assert (alone.status, alone.stdout) == (1, "")
    assert "metric “Never”: " in alone.stderr


def test_what_is_shown_is_what_the_api_answers(
    done: Done, data: Path, server: ChildServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = json.loads(done("experiment", "results", 1, "--json", "--data", data))
    # The directory is in use, and settings say where its server is.
    monkeypatch.setenv("HOGLAB_SITE_URL", server.url)
    beside = json.loads(done("experiment", "results", 1, "--json", "--data", server.data))
    for row in (*alone["rows"], *beside["rows"]):
        del row["computed_at"]
    assert alone == beside
    control, test = (row for row in alone["rows"] if row["metric"] == "Revenue")
    expected = compare(
        StatisticsConfig(FrequentistConfig()),
        *(SampleMean(row["number_of_samples"], row["sum"], row["sum_squares"]) for row in (control, test)),
    )
    assert (test["interval_lower"], test["interval_upper"]) == pytest.approx(expected.confidence_interval)
    assert test["p_value"] == pytest.approx(expected.p_value)
    assert control["is_baseline"]
    assert control["significant"] is None


def test_the_key_of_a_command_is_gone_after_it(done: Done, server: ChildServer) -> None:
    done("experiment", "results", 1, "--data", server.data, "--host", server.url)
    assert "hoglab experiment" not in done("keys", "list", "--data", server.data)


def test_a_server_is_asked_with_its_address_and_a_key_alone(
    done: Done, server: ChildServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = done("keys", "create", "--label", "reader", "--scopes", "experiment:read", "--data", server.data)
    monkeypatch.setenv("HOGLAB_API_KEY", key.strip())
    shown = done("experiment", "results", 1, "--host", server.url, "--data", tmp_path / "none")
    assert "Purchase rate" in shown


def test_what_the_project_does_by_default_is_said(done: Done, data: Path, tmp_path: Path) -> None:
    copy = tmp_path / "data"
    copy_for_a_server(data, copy)
    with opened_accounts(copy) as accounts:
        accounts.update_experiment_defaults(1, {"default_sequential_testing_enabled": True})
    alone = done("experiment", "results", 1, "--data", copy)
    server = ForkedServer(
        data=copy, host="127.0.0.1", port=free_port(), environment={"HOGLAB_ACCESS_LOG": "false"}
    )
    with closing(server):
        server.start()
        served = done("experiment", "results", 1, "--data", copy, "--host", server.url)
    for shown in (alone, served):
        assert "(sequential)" in shown
        assert "single look" not in shown


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_rows_with_sufficient_statistics_are_written(
    done: Done, data: Path, tmp_path: Path, kind: str
) -> None:
    target = tmp_path / f"results.{kind}"
    done("experiment", "results", 1, "--data", data, "--to", target)
    with duckdb.connect() as connection:
        found = connection.execute(
            "SELECT metric, variant, number_of_samples, sum, sum_squares, len(breakdown::VARCHAR[]) "
            "FROM query_table($file) ORDER BY metric, variant, breakdown IS NULL",
            {"file": str(target)},
        ).fetchall()
    assert len(found) == 2 * 5  # four metrics, and the one cell of the breakdown
    revenue = {row[1]: row[2:5] for row in found if row[0] == "Revenue"}
    amounts = [10 + number % 7 for number in range(2 * PEOPLE) if number % 2 == 0 and number % 10 < 4]
    assert revenue["control"] == (PEOPLE, sum(amounts), sum(amount**2 for amount in amounts))
    assert {row[5] for row in found if row[0] == "By plan"} == {1, None}


def test_the_ten_lines_of_the_document_reproduce_an_exported_result(
    done: Done,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = (Path(__file__).parents[2] / "docs/statistics.md").read_text(encoding="utf-8")
    programs = [block.partition("```")[0] for block in text.split("```python\n")[1:]]
    (program,) = (program for program in programs if "results.csv" in program)
    done("experiment", "results", 1, "--data", data, "--to", tmp_path / "results.csv")
    monkeypatch.chdir(tmp_path)
    exec(program, {})  # noqa: S102 - our own documentation
    printed = dict(line.split(" ", 1) for line in capsys.readouterr().out.splitlines())
    with (tmp_path / "results.csv").open() as file:
        row = next(row for row in csv.DictReader(file) if row["variant"] == "test")
    assert float(printed["p_value"]) == pytest.approx(float(row["p_value"]), rel=1e-9)
    interval = [float(bound) for bound in printed["confidence_interval"].split()]
    assert interval == pytest.approx([float(row["interval_lower"]), float(row["interval_upper"])], rel=1e-9)


class Page(HTMLParser):
    """What a page is made of."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.texts: list[str] = []
        self.policy = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        given: dict[str, Any] = dict(attrs)
        self.links += [value for name, value in given.items() if name in ("src", "href", "xlink:href")]
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_a_page_shows_everything_and_loads_nothing(done: Done, place: list[object], tmp_path: Path) -> None:
    target = tmp_path / "results.html"
    done("experiment", "results", 1, *place, "--to", target)
    text = target.read_text(encoding="utf-8")
    page = Page(text)
    assert page.links == []
    assert "script" not in page.tags
    assert page.policy.startswith("default-src 'none'")
    assert "url(" not in text
    assert "Checkout & <more>" in page.texts
    # The exposures; for three metrics the intervals and their course over the days.
    assert page.tags.count("svg") == 1 + 2 * 3
    assert page.texts.count("03-05") == 1 + 3
    assert "@import" not in text


def test_a_plan_from_the_history_of_the_project(done: Done, place: list[object]) -> None:
    asked = ["--event", "$feature_flag_called", "--days", 366, "--effect", 20, "--effect", 50]
    shown = done("experiment", "plan", 1, *asked, *place)
    assert shown.index("Revenue") < shown.index("Purchase rate")
    assert "400 people did $feature_flag_called in 366 days, the first of them" in shown
    assert "the mean is 0.5." in shown
    (plan,) = json.loads(
        done("experiment", "plan", 1, *asked, *place, "--json", "--metric", "Purchase rate", "--power", 90)
    )
    (small, large) = plan["effects"]
    expected = sample_size_for(
        StatisticsConfig(FrequentistConfig()), Proportion(2 * PEOPLE, PEOPLE), 0.2, power=0.9
    )
    assert (small["effect"], small["people"]) == (0.2, expected)
    assert large["people"] < small["people"]


def test_a_simulation_on_the_people_of_the_project(done: Done, place: list[object]) -> None:
    asked = ["--days", 366, "--experiments", 40, "--looks", 3, "--metric", "Revenue", "--seed", 3]
    shown = done("experiment", "simulate", 1, *asked, *place)
    assert "40 experiments without an effect, and as many with one of +10.0%, on 400 people each." in shown
    for method in ("bayesian", "frequentist", "sequential"):
        assert f"\n {method} " in shown
    assert "fooled in one of ten experiments by design" in " ".join(shown.split())
    (simulation,) = json.loads(done("experiment", "simulate", 1, *asked, *place, "--json"))
    by_method = {row["method"]: row for row in simulation["methods"]}
    assert by_method["sequential"]["false_positives_watched"] <= 0.05
    assert by_method["frequentist"]["coverage"] > 0.8


def test_what_cannot_be_answered_is_one_clear_line(hoglab: Command, data: Path, tmp_path: Path) -> None:
    for arguments, part in (
        (["results", 77, "--data", data], "experiment 77"),
        (["results", 1, "--data", data, "--project", 9], "no project 9"),
        (["results", 1, "--data", tmp_path / "none"], "no hoglab data"),
        (["plan", 1, "--data", data, "--metric", "Nothing"], "no metric Nothing"),
        (["plan", 1, "--data", data, "--days", 400], "history_days"),
        (["simulate", 1, "--data", data, "--days", 366, "--effect", 0], "effect"),
        (["simulate", 1, "--data", data, "--days", 1], "Nobody did any event in the last 1 days"),
        (["results", 1, "--data", data, "--to", tmp_path / "results.xlsx"], ".parquet"),
        (["results", 1, "--data", data, "--to", tmp_path / "no" / "results.html"], "not written"),
        (["results", 1, "--data", data, "--host", "http://127.0.0.1:9"], "--host"),
        (
            ["results", 1, "--data", data, "--host", "http://127.0.0.1:9", "--key", "phx_none"],
            "--host",
        ),
    ):
        ended = hoglab("experiment", *arguments)
        assert ended.status == 1
        (line,) = ended.stderr.strip().splitlines()
        assert line.startswith("hoglab: ")
        assert part in line


def test_p_values_are_corrected_with_those_of_all_primary_metrics(done: Done, tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.mkdir(mode=0o700)
    with closing(Lab(path)) as lab:
        config = {"method": "frequentist", "multiple_testing_correction": "bonferroni"}
        lab.experiment(
            start_date=START.isoformat(),
            end_date=END.isoformat(),
            stats_config=config,
            metrics=[REVENUE, PURCHASES, REVENUE | {"name": "Again"}],
        )
        events = [exposed(f"p{number}", ("control", "test")[number % 2], START) for number in range(200)]
        events += [
            bought(f"p{number}", START, 5) for number in range(200) if number // 2 % (5, 3)[number % 2] == 0
        ]
        lab.send(events)
    rows = json.loads(done("experiment", "results", 1, "--json", "--data", path))["rows"]
    corrected = [
        (row["adjusted_p_value"], min(3 * row["p_value"], 1)) for row in rows if not row["is_baseline"]
    ]
    assert len(corrected) == 3
    for found, expected in corrected:
        assert found == pytest.approx(expected)


def test_a_draft_and_a_metric_of_the_former_engine_are_explained(done: Done, tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.mkdir(mode=0o700)
    with closing(Lab(path)) as lab:
        lab.experiment(metrics=[PURCHASES])
    shown = done("experiment", "results", 1, "--data", path)
    assert "has not started yet" in shown
    assert "Metric: Purchase rate" in shown
    assert "Effect" not in shown, "nothing is compared yet"
    done("experiment", "results", 1, "--data", path, "--to", tmp_path / "draft.html")


def test_results_from_a_table_beside_the_events(done: Done, tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.mkdir(mode=0o700)
    orders = {
        "kind": "ExperimentMetric",
        "metric_type": "mean",
        "name": "Orders",
        "source": {
            "kind": "ExperimentDataWarehouseNode",
            "table_name": "orders",
            "timestamp_field": "at",
            "events_join_key": "distinct_id",
            "data_warehouse_join_key": "customer",
            "math": "sum",
            "math_property": "amount",
        },
    }
    Lab(path).close()  # makes the database
    (path / "warehouse").mkdir()
    lines = ["customer,at,amount", *(f"p{number},2026-03-02 10:00:00,{number}.5" for number in range(4))]
    (path / "warehouse" / "orders.csv").write_text("\n".join(lines) + "\n")
    done("warehouse", "add", "orders", "orders.csv", "--data", path)
    with closing(Lab(path)) as lab:
        lab.experiment(start_date=START.isoformat(), end_date=END.isoformat(), metrics=[orders])
        lab.send(exposed(f"p{number}", ("control", "test")[number % 2], START) for number in range(4))
    rows = json.loads(done("experiment", "results", 1, "--json", "--data", path))["rows"]
    assert {row["variant"]: row["sum"] for row in rows} == {"control": 0.5 + 2.5, "test": 1.5 + 3.5}
