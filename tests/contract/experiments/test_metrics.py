"""The metrics of an experiment, inline and saved, and their order (rules 3.8 to 3.10)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from tests.contract.conftest import Api
from tests.contract.experiments.test_changes import MEAN, START, read
from tests.contract.experiments.test_flag_linkage import patch, refuse, variants
from tests.contract.experiments.test_representation import refused
from tests.contract.rules import rule

EVENT = {"kind": "EventsNode", "event": "purchase"}
FUNNEL = {"kind": "ExperimentMetric", "metric_type": "funnel", "series": [EVENT]}
RATIO = {"kind": "ExperimentMetric", "metric_type": "ratio", "numerator": EVENT, "denominator": EVENT}
RETENTION = {
    "kind": "ExperimentMetric",
    "metric_type": "retention",
    "start_event": EVENT,
    "completion_event": EVENT,
    "retention_window_start": 1,
    "retention_window_end": 7,
    "retention_window_unit": "day",
    "start_handling": "first_seen",
}
COMMON = {
    "name": "M",
    "goal": "decrease",
    "conversion_window": 14,
    "conversion_window_unit": "day",
    "breakdownFilter": {"breakdowns": [{"property": "$browser", "type": "event"}]},
    "isSharedMetric": False,
    "sharedMetricId": 3,
    "version": 1,
}
FIRST, SECOND, THIRD = (str(UUID(int=number)) for number in (1, 2, 3))
ORDER, SECONDARY_ORDER = "primary_metrics_ordered_uuids", "secondary_metrics_ordered_uuids"


def uuids(experiment: dict[str, Any], field: str = "metrics") -> list[str]:
    return [metric["uuid"] for metric in experiment[field]]


def saved(api: Api, name: str = "Saved", **query: Any) -> dict[str, Any]:
    body = {"name": name, "query": MEAN | query}
    made: dict[str, Any] = api.ok("POST", "/experiment_saved_metrics/", body, status=201)
    return made


def link(metric: dict[str, Any], kind: str = "primary", **more: Any) -> dict[str, Any]:
    return {"id": metric["id"], "metadata": {"type": kind, **more}}


def action(api: Api, name: str) -> dict[str, Any]:
    made: dict[str, Any] = api.ok(
        "POST", "/actions/", {"name": name, "steps": [{"event": "viewed"}]}, status=201
    )
    return made


class TestShapes:
    @rule("3.8.1")
    @pytest.mark.parametrize(
        ("metric", "optional"),
        [
            (MEAN, {"lower_bound_percentile": 0.01, "upper_bound_percentile": 1, "ignore_zeros": True, "threshold": 2}),
            (FUNNEL, {"funnel_order_type": "unordered"}),
            (RATIO, {"numerator_outlier_handling": {"upper_bound_percentile": 0.99, "ignore_zeros": False}}),
            (RETENTION, {"start_handling": "last_seen"}),
        ],
        ids=lambda value: value.get("metric_type", "optional"),
    )  # fmt: skip
    def test_accepted(self, api: Api, metric: dict[str, Any], optional: dict[str, Any]) -> None:
        for field in ("metrics", "metrics_secondary"):
            sent = metric | optional | COMMON
            (kept,) = api.experiment(field, **{field: [sent]})[field]
            assert sent.items() <= kept.items()

    @rule("3.8.1", "3.8.5")
    @pytest.mark.parametrize(
        "source",
        [
            {"kind": "EventsNode"},
            {"kind": "EventsNode", "event": None, "math": "unique_session"},
            {"kind": "EventsNode", "event": "never seen", "math": "sum", "math_property": "amount"},
        ],
    )
    def test_sources(self, api: Api, source: dict[str, Any]) -> None:
        assert api.experiment(metrics=[MEAN | {"source": source}])["metrics"][0]["source"] == source

    @rule("3.8.1", "3.8.10")
    def test_a_table_as_source(self, api: Api) -> None:
        source = {
            "kind": "ExperimentDataWarehouseNode",
            "table_name": "orders",
            "timestamp_field": "at",
            "events_join_key": "properties.customer",
            "data_warehouse_join_key": "customer",
            "name": "n",
        }
        metrics = [MEAN | {"source": source}]
        body = {"name": "Button", "feature_flag_key": "button", "metrics": metrics}
        refused = api.refused("POST", "/experiments/", body)
        assert (refused["type"], refused["code"], refused["attr"]) == (
            "validation_error",
            "invalid_input",
            "metrics",
        )
        assert refused["detail"].startswith("Invalid metric at index 0: source: ")
        (api.data / "warehouse").mkdir(exist_ok=True)
        (api.data / "warehouse" / "orders.csv").write_text("customer,at\nc1,2026-03-09 10:00:00\n")
        table = {"name": "orders", "url_pattern": "orders.csv"}
        api.ok("POST", "/warehouse_tables/", table, status=201)
        assert api.experiment(metrics=metrics)["metrics"][0]["source"] == source

    @rule("3.8.2")
    @pytest.mark.parametrize(
        ("metric", "part"),
        [
            (MEAN | {"source": None}, "'source'"),
            ({key: value for key, value in RATIO.items() if key != "denominator"}, "'denominator'"),
            ({key: value for key, value in RETENTION.items() if key != "retention_window_end"}, "retention_window_end"),
            (MEAN | {"surprise": 1}, "'surprise'"),
            (MEAN | {"upper_bound_percentile": 95}, "upper_bound_percentile"),
            (MEAN | {"goal": "up"}, "'goal'"),
            (MEAN | {"conversion_window": "a"}, "'conversion_window'"),
            (MEAN | {"metric_type": "median"}, "metric_type"),
            (MEAN | {"source": {"kind": "TableNode"}}, "'source'"),
            (MEAN | {"source": EVENT | {"math": "p90"}}, "'math'"),
            (FUNNEL | {"series": [{"kind": "ActionsNode", "id": "7"}]}, "'id'"),
            (FUNNEL | {"series": [EVENT | {"id": "purchase"}]}, "EventsNode does not accept an 'id' field."),
        ],
    )  # fmt: skip
    def test_refused(self, api: Api, metric: dict[str, Any], part: str) -> None:
        for field in ("metrics", "metrics_secondary"):
            error = refused(api, **{field: [MEAN, metric]})
            assert (error["attr"], error["code"]) == (field, "invalid_input")
            assert error["detail"].startswith("Invalid metric at index 1: [{'loc': (")
            assert part in error["detail"]

    @rule("3.8.3")
    @pytest.mark.parametrize(
        ("value", "detail"),
        [
            ({}, "Metrics must be a list"),
            (["m"], "Invalid metric at index 0: must be a dict"),
            (
                [{"kind": "ExperimentTrendsQuery"}],
                (
                    "Invalid metric at index 0: legacy metric kind 'ExperimentTrendsQuery' is no longer supported for "
                    "new experiments. Use 'ExperimentMetric' instead."
                ),
            ),
            ([{"kind": "Other"}], "Invalid metric at index 0: metric kind must be 'ExperimentMetric'"),
            (
                [FUNNEL | {"series": []}],
                (
                    "Invalid metric at index 0: funnel metrics require at least one step. The experiment exposure "
                    "event is added as the initial step automatically."
                ),
            ),
        ],
    )
    def test_checked_first(self, api: Api, value: Any, detail: str) -> None:
        for field in ("metrics", "metrics_secondary"):
            error = refused(api, **{field: value})
            assert (error["attr"], error["detail"]) == (field, detail)


class TestActions:
    @staticmethod
    def node(number: int) -> dict[str, Any]:
        return MEAN | {"source": {"kind": "ActionsNode", "id": number}}

    @rule("3.8.4")
    def test_unknown(self, api: Api) -> None:
        gone = action(api, "Gone")["id"]
        api.ok("PATCH", f"/actions/{gone}/", {"deleted": True})
        made = api.experiment()
        for number in (gone, 999999):
            for error in (
                refused(api, metrics=[self.node(number)]),
                refuse(api, made, metrics=[self.node(number)]),
            ):
                assert (error["attr"], error["detail"]) == (
                    None,
                    (
                        f"Action(s) with ID {number} not found or deleted. Each ActionsNode must reference an existing "
                        "action belonging to this project."
                    ),
                )

    @rule("3.8.8")
    def test_names(self, api: Api) -> None:
        number = action(api, "Before")["id"]
        shared = saved(api, source={"kind": "ActionsNode", "id": number, "name": "old"})
        made = api.experiment(metrics=[self.node(number)], saved_metrics_ids=[link(shared)])
        assert made["metrics"][0]["source"]["name"] == "Before"
        api.ok("PATCH", f"/actions/{number}/", {"name": "After"})
        after = read(api, made)
        assert after["metrics"][0]["source"]["name"] == "After"
        assert after["saved_metrics"][0]["query"]["source"]["name"] == "After"


class TestIdentity:
    @rule("3.8.6")
    def test_uuids(self, api: Api) -> None:
        shared = saved(api, uuid=THIRD)
        made = api.experiment(
            metrics=[MEAN | {"uuid": FIRST}, MEAN, MEAN | {"uuid": THIRD}],
            metrics_secondary=[MEAN | {"uuid": FIRST}, MEAN | {"uuid": SECOND}],
            saved_metrics_ids=[link(shared)],
        )
        primary, secondary = uuids(made), uuids(made, "metrics_secondary")
        assert (primary[0], secondary[1], shared["query"]["uuid"]) == (FIRST, SECOND, THIRD)
        everything = [*primary, *secondary, THIRD]
        assert len(set(everything)) == 6
        assert all(str(UUID(each)) == each for each in everything)
        after = patch(api, made, metrics=[MEAN | {"uuid": SECOND}, MEAN | {"uuid": primary[1]}])
        assert uuids(after)[0] not in everything
        assert uuids(after)[1] == primary[1]
        assert uuids(after, "metrics_secondary") == secondary

    @rule("3.8.7")
    def test_fingerprints(self, api: Api) -> None:
        three = {"feature_flag_variants": variants(control=40, a=30, b=30)}
        made = api.experiment(metrics=[MEAN | {"fingerprint": "mine"}, RATIO], parameters=three)

        def fingerprint(experiment: dict[str, Any]) -> str:
            found: str = experiment["metrics"][0]["fingerprint"]
            return found

        seen = [fingerprint(made)]
        assert len(seen[0]) == 64
        assert fingerprint(patch(api, made, name="Other", description="d", archived=True)) == seen[0]
        relabelled = [RATIO, MEAN | {"name": "New", "uuid": SECOND, "fingerprint": "mine"}]
        assert patch(api, made, metrics=relabelled)["metrics"][1]["fingerprint"] == seen[0]
        patch(api, made, metrics=[MEAN, RATIO])
        changes: list[dict[str, Any]] = [
            {"start_date": START},
            {"stats_config": {"method": "frequentist"}},
            {"exposure_criteria": {"filterTestAccounts": False}},
            {"only_count_matured_users": True},
            {"excluded_variants": ["b"]},
            {"metrics": [MEAN | {"goal": "decrease"}, RATIO]},
        ]
        seen += [fingerprint(patch(api, made, **change)) for change in changes]
        assert len(set(seen)) == len(seen)
        assert fingerprint(read(api, made)) == seen[-1]

    @rule("3.8.9")
    def test_null(self, api: Api) -> None:
        made = api.experiment(metrics=None, metrics_secondary=None)
        assert (made["metrics"], made["metrics_secondary"]) == ([], [])
        after = patch(api, made, metrics=None, metrics_secondary=None)
        assert (after["metrics"], after["metrics_secondary"]) == (None, None)


class TestSavedMetrics:
    @rule("3.9.1")
    @pytest.mark.parametrize(
        ("item", "detail"),
        [
            (5, "Saved metric must be an object"),
            ({}, "Saved metric must have an id"),
            ({"id": 1, "metadata": []}, "Metadata must be an object"),
            ({"id": 1, "metadata": {"x": 1}}, "Metadata must have a type key"),
            (
                {"id": 999999, "metadata": {"type": "primary"}},
                "Saved metric does not exist or does not belong to this project",
            ),
        ],
    )
    def test_checks(self, api: Api, item: Any, detail: str) -> None:
        made = api.experiment()
        for error in (refused(api, saved_metrics_ids=[item]), refuse(api, made, saved_metrics_ids=[item])):
            assert (error["attr"], error["detail"]) == ("saved_metrics_ids", detail)

    @rule("3.9.1")
    def test_the_same_twice(self, api: Api) -> None:
        metric = link(saved(api))
        assert "does not exist" in refused(api, saved_metrics_ids=[metric, metric])["detail"]

    @rule("3.9.2")
    def test_the_complete_set(self, api: Api) -> None:
        a, b, c = (saved(api, name) for name in "ABC")
        made = api.experiment(saved_metrics_ids=[link(a), link(b)])
        before = {one["saved_metric"]: one["id"] for one in made["saved_metrics"]}
        after = patch(api, made, saved_metrics_ids=[link(c), link(b, "secondary")])
        links = {one["saved_metric"]: one for one in after["saved_metrics"]}
        assert links.keys() == {b["id"], c["id"]}
        assert links[b["id"]]["id"] == before[b["id"]]
        assert links[b["id"]]["metadata"] == {"type": "secondary"}
        assert [one["id"] for one in after["saved_metrics"]] == sorted(one["id"] for one in links.values())
        assert patch(api, made, saved_metrics_ids=None)["saved_metrics"] == after["saved_metrics"]
        assert patch(api, made, saved_metrics_ids=[])["saved_metrics"] == []

    @rule("3.9.3")
    def test_what_a_link_shows(self, api: Api) -> None:
        metric = saved(api)
        made = api.experiment(saved_metrics_ids=[link(metric, breakdowns=[{"property": "$os"}])])
        (shown,) = made["saved_metrics"]
        assert list(shown) == ["id", "experiment", "saved_metric", "metadata", "created_at", "query", "name"]
        assert shown["metadata"] == {"type": "primary", "breakdowns": [{"property": "$os"}]}
        assert shown["query"] == metric["query"] | {"fingerprint": shown["query"]["fingerprint"]}
        changed = MEAN | {"goal": "decrease"}
        api.ok("PATCH", f"/experiment_saved_metrics/{metric['id']}/", {"name": "New", "query": changed})
        (after,) = read(api, made)["saved_metrics"]
        assert (after["name"], after["query"]["goal"]) == ("New", "decrease")
        assert after["query"]["fingerprint"] != shown["query"]["fingerprint"]

    @rule("3.9.4")
    def test_kinds(self, api: Api) -> None:
        a, b, c = (saved(api, name) for name in "ABC")
        made = api.experiment(saved_metrics_ids=[{"id": a["id"]}, link(b), link(c, "guardrail")])
        assert made[ORDER] == [a["query"]["uuid"], b["query"]["uuid"]]
        assert made[SECONDARY_ORDER] == [c["query"]["uuid"]]


class TestOrders:
    @rule("3.10.1")
    def test_created(self, api: Api) -> None:
        shared = saved(api)
        inline = [MEAN | {"uuid": FIRST}, MEAN | {"uuid": SECOND}]
        made = api.experiment("a", metrics=inline, saved_metrics_ids=[link(shared)], **{ORDER: [SECOND]})
        assert made[ORDER] == [SECOND, FIRST, shared["query"]["uuid"]]
        assert made[SECONDARY_ORDER] is None
        assert api.experiment("b")[ORDER] is None
        assert api.experiment("c", metrics=[])[ORDER] == []
        assert api.experiment("d", metrics=inline, **{ORDER: []})[ORDER] == [FIRST, SECOND]

    @rule("3.10.2")
    def test_changed(self, api: Api) -> None:
        shared = saved(api)
        inline = [MEAN | {"uuid": FIRST}, MEAN | {"uuid": SECOND}]
        made = api.experiment(metrics=inline)
        assert patch(api, made, **{ORDER: [SECOND, FIRST]})[ORDER] == [SECOND, FIRST]
        assert patch(api, made, metrics=inline)[ORDER] == [SECOND, FIRST]
        changed = patch(api, made, metrics=[*inline[1:], MEAN | {"uuid": THIRD}])
        assert changed[ORDER] == [SECOND, THIRD]
        assert patch(api, made, saved_metrics_ids=[link(shared)])[ORDER][2:] == [shared["query"]["uuid"]]
        moved = patch(api, made, saved_metrics_ids=[link(shared, "secondary")])
        assert (moved[ORDER], moved[SECONDARY_ORDER]) == ([SECOND, THIRD], [shared["query"]["uuid"]])
        sent = patch(api, made, metrics=inline, **{ORDER: [FIRST]})
        assert sent[ORDER] == [FIRST, SECOND]

    @rule("3.10.3")
    def test_refused(self, api: Api) -> None:
        made = api.experiment(metrics=[MEAN | {"uuid": FIRST}], metrics_secondary=[MEAN | {"uuid": SECOND}])
        advice = "This is likely a frontend bug - please refresh and try again."
        for kind, field, uuid in (("primary", ORDER, FIRST), ("secondary", SECONDARY_ORDER, SECOND)):
            error = refuse(api, made, **{field: None})
            text = f"{kind}_metrics_ordered_uuids is null but {kind} metrics exist. {advice}"
            assert (error["attr"], error["detail"]) == (None, text)
            text = f"{kind}_metrics_ordered_uuids is missing UUIDs: ['{uuid}']. {advice}"
            assert refuse(api, made, **{field: [THIRD]})["detail"] == text
            assert patch(api, made, **{field: [THIRD, uuid]})[field] == [THIRD, uuid]
