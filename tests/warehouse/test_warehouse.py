"""Tables beside the events over the API: who may register what, and what metrics then say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from tests.analysis.events import Event
from tests.analysis.lab import Lab

from hoglab.analysis.timeseries import store
from hoglab.http.identity import Level
from hoglab.warehouse import service

pytestmark = pytest.mark.slow

START = datetime(2026, 3, 8, 9, 0, tzinfo=UTC)
PATH = "/warehouse_tables/"
REVENUE = {
    "kind": "ExperimentMetric",
    "metric_type": "mean",
    "source": {
        "kind": "ExperimentDataWarehouseNode",
        "table_name": "orders",
        "timestamp_field": "at",
        "events_join_key": "properties.customer",
        "data_warehouse_join_key": "customer",
        "math": "sum",
        "math_property": "amount",
    },
}


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path, refresh_s=0)
    (tmp_path / "tables").mkdir()
    yield lab
    lab.close()


def write_orders(lab: Lab, amounts: dict[str, float], name: str = "orders.parquet") -> None:
    at = [START.replace(tzinfo=None) + timedelta(hours=2)] * len(amounts)
    table = pa.table({"customer": list(amounts), "at": at, "amount": list(amounts.values())})
    pyarrow.parquet.write_table(table, lab.tables.path / name)


def add(lab: Lab, *, status: int = 201, **fields: Any) -> dict[str, Any]:
    body = {"name": "orders", "url_pattern": "orders.parquet", **fields}
    made: dict[str, Any] = lab.ok("POST", PATH, body, status=status)
    return made


def expose(lab: Lab, people: int = 120) -> dict[str, float]:
    """People of both variants, each a customer; what each will have bought."""
    events = []
    for number in range(people):
        properties = {
            "$feature_flag": "checkout",
            "$feature_flag_response": "control" if number % 2 else "test",
            "customer": f"c{number}",
        }
        events.append(Event(f"p{number}", START + timedelta(hours=1), "$feature_flag_called", properties))
    lab.send(events)
    return {f"c{number}": float(number % 7 + 1) for number in range(people)}


def test_a_table_in_full(lab: Lab) -> None:
    write_orders(lab, {"c1": 2.0})
    made = add(lab)
    assert made["columns"] == [
        {"key": name, "name": name, "type": kind, "schema_valid": True}
        for name, kind in (("customer", "string"), ("at", "datetime"), ("amount", "float"))
    ]
    assert {name: made[name] for name in ("name", "format", "url_pattern", "deleted", "credential")} == {
        "name": "orders",
        "format": "Parquet",
        "url_pattern": "orders.parquet",
        "deleted": False,
        "credential": None,
    }
    assert made["created_by"]["email"] == "owner@localhost"
    assert lab.ok("GET", f"{PATH}{made['id']}/") == made
    assert lab.ok("GET", PATH)["results"] == [made]
    assert lab.ok("GET", f"{PATH}?search=nothing")["count"] == 0
    lab.call("DELETE", f"{PATH}{made['id']}/")
    assert lab.call("GET", f"{PATH}{made['id']}/").status_code == 404
    assert (lab.tables.path / "orders.parquet").exists()


@pytest.mark.parametrize(
    ("fields", "attr"),
    [
        ({"name": "1orders"}, "name"),
        ({"name": "or ders"}, "name"),
        ({"name": "x" * 129}, "name"),
        ({"url_pattern": "../hoglab.parquet"}, "url_pattern"),
        ({"url_pattern": "/etc/passwd", "format": "CSVWithNames"}, "url_pattern"),
        ({"url_pattern": "none.parquet"}, "url_pattern"),
        ({"url_pattern": "s3://bucket/*.parquet"}, "url_pattern"),
        ({"url_pattern": "orders"}, "format"),
        ({"format": "Delta"}, "format"),
        ({"format": "CSVWithNames", "url_pattern": "../events.duckdb"}, "url_pattern"),
    ],
)
def test_what_is_no_table(lab: Lab, fields: dict[str, Any], attr: str) -> None:
    write_orders(lab, {"c1": 2.0})
    assert add(lab, status=400, **fields)["attr"] == attr
    assert lab.ok("GET", PATH)["count"] == 0


def test_names_are_unique_and_tables_not_endless(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    write_orders(lab, {"c1": 2.0})
    add(lab)
    assert add(lab, status=400)["code"] == "unique"
    monkeypatch.setattr(service, "MAX_TABLES_PER_PROJECT", 1)
    assert "at most 1" in add(lab, status=400, name="more")["detail"]


def test_only_admins_change_tables(lab: Lab) -> None:
    write_orders(lab, {"c1": 2.0})
    made = add(lab)
    user = lab.accounts.create_user("member@example.com")
    lab.accounts.join(lab.accounts.projects()[0].organization_id, user.id, Level.MEMBER)
    key = lab.accounts.create_key(user.id, "member", ["*"]).value
    headers = {"Authorization": f"Bearer {key}"}
    body = {"name": "mine", "url_pattern": "orders.parquet"}
    one = f"{PATH}{made['id']}/"
    assert lab.call("GET", one, headers=headers).status_code == 200
    assert lab.call("POST", PATH, body, headers=headers).status_code == 403
    assert lab.call("PATCH", one, {}, headers=headers).status_code == 403
    assert lab.call("POST", f"{one}refresh_schema/", {}, headers=headers).status_code == 403
    assert lab.call("DELETE", one, headers=headers).status_code == 403
    reading = lab.accounts.create_key(lab.accounts.owner_id(), "reading", ["warehouse_table:read"]).value
    answer = lab.call("POST", PATH, body, headers={"Authorization": f"Bearer {reading}"})
    assert answer.status_code == 403


def test_a_table_belongs_to_one_project(lab: Lab) -> None:
    write_orders(lab, {"c1": 2.0})
    made = add(lab)
    other = lab.accounts.create_project(lab.accounts.projects()[0].organization_id, "Other")
    base = f"http://test/api/projects/{other.id}/warehouse_tables/"
    assert lab.ok("GET", base)["count"] == 0
    assert lab.call("GET", f"{base}{made['id']}/").status_code == 404
    assert lab.call("DELETE", f"{base}{made['id']}/").status_code == 404


def test_other_files_and_a_new_schema(lab: Lab) -> None:
    write_orders(lab, {"c1": 2.0})
    made = add(lab)
    one = f"{PATH}{made['id']}/"
    (lab.tables.path / "orders.csv").write_text("customer,at,amount,more\nc1,2026-03-08 11:00:00,2.5,x\n")
    changed = lab.ok("PATCH", one, {"url_pattern": "orders.csv"})
    assert (changed["format"], len(changed["columns"])) == ("CSVWithNames", 4)
    assert lab.ok("PATCH", one, {"name": "else"}, status=400)["attr"] == "name"
    (lab.tables.path / "orders.csv").write_text("customer,at,amount\nc1,2026-03-08 11:00:00,2.5\n")
    assert len(lab.ok("POST", f"{one}refresh_schema/", {})["columns"]) == 3


def test_results_from_a_table(lab: Lab) -> None:
    amounts = expose(lab)
    write_orders(lab, amounts)
    add(lab)
    experiment = lab.experiment(metrics=[REVENUE], start_date=START.isoformat())
    query = {"kind": "ExperimentQuery", "experiment_id": experiment["id"], "metric": REVENUE}
    found = lab.query(query)
    assert found["baseline"]["sum"] == sum(amounts[f"c{number}"] for number in range(1, 120, 2))
    assert found["variant_results"][0]["sum"] == sum(amounts[f"c{number}"] for number in range(0, 120, 2))
    assert found["variant_results"][0]["chance_to_win"] is not None
    series = lab.series(experiment)
    assert series["status"] == "completed"
    assert series["timeseries"]["2026-03-10"]["baseline"]["sum"] == found["baseline"]["sum"]


def test_files_that_change_reach_results_without_new_events(lab: Lab) -> None:
    amounts = expose(lab)
    write_orders(lab, amounts)
    add(lab)
    experiment = lab.experiment(metrics=[REVENUE], start_date=START.isoformat())
    query = {"kind": "ExperimentQuery", "experiment_id": experiment["id"], "metric": REVENUE}
    before = lab.query(query)["baseline"]["sum"]
    write_orders(lab, {customer: 2 * amount for customer, amount in amounts.items()})
    assert lab.query(query)["baseline"]["sum"] == 2 * before
    assert lab.ok("POST", "/query/", {"query": query})["is_cached"]
    plan = {"kind": "ExperimentPlanQuery", "experiment_id": experiment["id"], "metric": REVENUE}
    planned = lab.query(plan)["history"]["mean"]
    write_orders(lab, amounts)
    assert lab.query(plan)["history"]["mean"] == pytest.approx(planned / 2)


RETURNS = {
    "kind": "ExperimentMetric",
    "metric_type": "retention",
    "start_event": {**REVENUE["source"], "math": "total"},
    "completion_event": {"kind": "EventsNode", "event": "nothing"},
    "retention_window_start": 0,
    "retention_window_end": 1,
    "retention_window_unit": "day",
    "start_handling": "last_seen",
}


def sums(lab: Lab, experiment: dict[str, Any], *, status: str = "completed") -> list[tuple[int, float]]:
    series = lab.series(experiment)
    assert series["status"] == status
    rows = [point["baseline"] for point in series["timeseries"].values()]
    return [(row["number_of_samples"], row["sum"]) for row in rows]


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("metric", [REVENUE, {**REVENUE, "upper_bound_percentile": 0.9}, RETURNS])
def test_every_stored_day_is_computed_anew_when_files_change(
    tmp_path: Path, metric: dict[str, Any], ended: bool
) -> None:
    """Also the days that are over, also of an experiment whose results have settled."""
    with closing(Lab(tmp_path, refresh_s=10**6)) as lab:
        (tmp_path / "tables").mkdir()
        amounts = expose(lab)
        write_orders(lab, amounts)
        table = add(lab)
        end = {"end_date": (START + timedelta(days=2)).isoformat()} if ended else {}
        experiment = lab.experiment(metrics=[metric], start_date=START.isoformat(), **end)
        lab.now += timedelta(days=2)
        before = sums(lab, experiment)
        computed = lab.series(experiment)["computed_at"]
        lab.now += timedelta(minutes=5)
        assert lab.series(experiment)["computed_at"] == computed
        some = {customer: amount for customer, amount in amounts.items() if customer < "c5"}
        write_orders(lab, some)
        after = sums(lab, experiment)
        assert len(after) == len(before)
        assert all(now != then for now, then in zip(after, before, strict=True))
        assert sums(lab, experiment) == after
        write_orders(lab, amounts, "all.parquet")
        lab.ok("PATCH", f"{PATH}{table['id']}/", {"url_pattern": "all.parquet"})
        assert sums(lab, experiment) == before
        (lab.tables.path / "all.parquet").unlink()
        assert sums(lab, experiment, status="partial") == before  # what is known stays
        assert "all.parquet" in lab.series(experiment)["errors"].popitem()[1]
        lab.now += timedelta(days=20)
        write_orders(lab, some, "all.parquet")
        lab.runner.run_once()
        with lab.database.read() as connection:
            stored = store.newest_result(connection, lab.service.plans()[0].key(experiment["metrics"][0]))
        assert stored is not None
        assert stored.result is not None
        assert stored.result["baseline"]["sum"] == after[-1][1]


FOR_TABLES = [
    ({"table_name": "others"}, "source: the project has no data warehouse table 'others'."),
    ({"timestamp_field": "when"}, "source: the table orders has no column when"),
    (
        {"timestamp_field": "amount"},
        "source: timestamp_field: the column amount of the table orders is float, not a time",
    ),
    ({"data_warehouse_join_key": "buyer"}, "source: the table orders has no column buyer"),
    (
        {"math_property": "customer"},
        "source: math_property: the column customer of the table orders is string, not a number",
    ),
    ({"math_property": "amount +"}, "source.math_property cannot be read"),
    ({"math": "unique_session"}, "source: math: unique_session cannot be counted in rows of a table"),
    (
        {"properties": [{"key": "vip", "value": True, "operator": "exact", "type": "data_warehouse"}]},
        "source: the table orders has no column vip",
    ),
]


def revenue(**fields: Any) -> dict[str, Any]:
    return {**REVENUE, "source": {**REVENUE["source"], **fields}}


@pytest.mark.parametrize(("fields", "reason"), FOR_TABLES)
def test_a_metric_that_its_table_cannot_answer_is_not_saved(
    lab: Lab, fields: dict[str, Any], reason: str
) -> None:
    write_orders(lab, {"c1": 2.0})
    add(lab)
    metric = revenue(**fields)
    body = {"name": "Orders", "feature_flag_key": "orders", "metrics_secondary": [REVENUE, metric]}
    refused = lab.ok("POST", "/experiments/", body, status=400)
    assert (refused["type"], refused["attr"]) == ("validation_error", "metrics_secondary")
    assert refused["detail"].startswith(f"Invalid metric at index 1: {reason}")
    assert lab.ok("GET", "/experiments/")["count"] == 0
    experiment = lab.experiment(metrics=[REVENUE])
    one = f"/experiments/{experiment['id']}/"
    refused = lab.ok("PATCH", one, {"metrics": [metric]}, status=400)
    assert refused["attr"] == "metrics"
    assert reason in refused["detail"]
    assert lab.ok("GET", one)["metrics"] == experiment["metrics"]
    saved = {"name": "Orders", "query": metric}
    refused = lab.ok("POST", "/experiment_saved_metrics/", saved, status=400)
    assert refused["attr"] == "query"
    assert refused["detail"].startswith(f"Invalid metric: {reason}")
    kept = lab.ok("POST", "/experiment_saved_metrics/", {**saved, "query": REVENUE}, status=201)
    one = f"/experiment_saved_metrics/{kept['id']}/"
    assert reason in lab.ok("PATCH", one, {"query": metric}, status=400)["detail"]
    assert lab.ok("GET", one)["query"] == kept["query"]


def test_whole_numbers_are_the_same_key_whatever_type_they_have(lab: Lab) -> None:
    """Columns of ids with a gap are often written as floats, and events may have ids as numbers or as text."""
    events = []
    for place, identifier in enumerate((7, "8", 9.5, 10.0)):
        shown = {"$feature_flag": "checkout", "$feature_flag_response": "control", "customer": identifier}
        events.append(Event(f"p{place}", START + timedelta(hours=1), "$feature_flag_called", shown))
    lab.send(events)
    at = [START.replace(tzinfo=None) + timedelta(hours=2)] * 5
    columns = {"customer": [7.0, 8.0, 9.5, None, 11.0], "at": at, "amount": [1.0, 2.0, 4.0, 8.0, 16.0]}
    pyarrow.parquet.write_table(pa.table(columns), lab.tables.path / "orders.parquet")
    add(lab)
    experiment = lab.experiment(metrics=[REVENUE], start_date=START.isoformat())
    assert sums(lab, experiment)[-1] == (4, 1 + 2 + 4)


def test_a_removed_table_leaves_its_experiments_editable(lab: Lab) -> None:
    write_orders(lab, {"c1": 2.0})
    made = add(lab)
    experiment = lab.experiment(metrics=[REVENUE])
    kept = lab.ok("POST", "/experiment_saved_metrics/", {"name": "Orders", "query": REVENUE}, status=201)
    assert lab.call("DELETE", f"{PATH}{made['id']}/").status_code == 204
    one = f"/experiments/{experiment['id']}/"
    own = experiment["metrics"]
    renamed = [{**own[0], "name": "What they paid"}]
    purchases = {**REVENUE, "source": {"kind": "EventsNode", "event": "buy"}}
    changed = lab.ok("PATCH", one, {"description": "Edited", "metrics": [purchases, *renamed]})
    assert [metric.get("name") for metric in changed["metrics"]] == [None, "What they paid"]
    assert lab.ok("PATCH", one, {"metrics": [], "metrics_secondary": renamed})["metrics_secondary"]
    refused = lab.ok("PATCH", one, {"metrics_secondary": [revenue(math="max")]}, status=400)
    assert "no data warehouse table 'orders'" in refused["detail"]
    assert lab.call("POST", f"{one}duplicate/", {}).status_code == 200
    linked = lab.ok("PATCH", one, {"saved_metrics_ids": [{"id": kept["id"]}]})
    assert len(linked["saved_metrics"]) == 1
    shared = f"/experiment_saved_metrics/{kept['id']}/"
    assert lab.ok("PATCH", shared, {"name": "Paid", "query": kept["query"]})["name"] == "Paid"
    lab.ok("PATCH", shared, {"query": {**kept["query"], "conversion_window": 2}}, status=400)


def test_a_metric_with_cohorts_groups_and_actions_beside_a_table_is_saved(lab: Lab) -> None:
    write_orders(lab, {"c1": 2.0})
    add(lab)
    plan = {"key": "plan", "value": "pro", "operator": "exact", "type": "group", "group_type_index": 0}
    funnel = {
        "kind": "ExperimentMetric",
        "metric_type": "funnel",
        "series": [{"kind": "EventsNode", "event": "buy", "properties": [plan]}, revenue()["source"]],
        "breakdownFilter": {"breakdowns": [{"property": "plan", "type": "group", "group_type_index": 0}]},
    }
    assert lab.experiment(metrics=[funnel])["metrics"][0]["series"] == funnel["series"]


def test_a_table_that_is_missing_fails_its_metric_alone(lab: Lab) -> None:
    amounts = expose(lab)
    write_orders(lab, amounts)
    made = add(lab)
    purchases = {
        "kind": "ExperimentMetric",
        "metric_type": "mean",
        "source": {"kind": "EventsNode", "event": "buy"},
    }
    experiment = lab.experiment(metrics=[REVENUE, purchases], start_date=START.isoformat())
    lab.call("DELETE", f"{PATH}{made['id']}/")
    query = {"kind": "ExperimentQuery", "experiment_id": experiment["id"], "metric": REVENUE}
    assert (
        "no data warehouse table 'orders'"
        in lab.ok("POST", "/query/", {"query": query}, status=400)["detail"]
    )
    series = lab.series(experiment)
    assert series["status"] == "failed"
    assert "no data warehouse table" in series["errors"]["2026-03-10"]
    assert lab.series(experiment, 1)["status"] == "completed"
    write_orders(lab, amounts)
    add(lab)
    assert lab.series(experiment)["status"] == "completed"
    (lab.tables.path / "orders.parquet").unlink()
    lab.now += timedelta(minutes=2)
    refused = lab.ok("POST", "/query/", {"query": query}, status=400)["detail"]
    assert (
        refused
        == "The data warehouse table orders: There is no file orders.parquet in the directory of tables."
    )
