"""Creating, changing, deleting and listing experiments (rules 5)."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tests.contract.conftest import Api
from tests.contract.experiments.test_flag_linkage import patch, refuse
from tests.contract.rules import rule

from hoglab.storage.database import Database

START, END = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
MEAN = {
    "kind": "ExperimentMetric",
    "metric_type": "mean",
    "source": {"kind": "EventsNode", "event": "purchase"},
}


def names(page: dict[str, Any]) -> list[str]:
    return [one["name"] for one in page["results"]]


def read(api: Api, experiment: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = api.ok("GET", f"/experiments/{experiment['id']}/")
    return found


class TestCreating:
    @rule("5.1.1")
    def test_what_is_required(self, api: Api) -> None:
        assert api.refused("POST", "/experiments/", {"feature_flag_key": "k"})["attr"] == "name"
        assert api.refused("POST", "/experiments/", {"name": "n"})["attr"] == "feature_flag_key"
        made = api.experiment()
        defaults = {
            "description": "", "start_date": None, "end_date": None, "holdout_id": None, "secondary_metrics": [],
            "saved_metrics": [], "saved_metrics_ids": None, "filters": {}, "archived": False, "deleted": False,
            "type": "product", "exposure_criteria": {"filterTestAccounts": True}, "metrics": [],
            "metrics_secondary": [], "stats_config": {"method": "bayesian"}, "scheduling_config": None,
            "conclusion": None, "conclusion_comment": None, "primary_metrics_ordered_uuids": None,
            "secondary_metrics_ordered_uuids": None, "only_count_matured_users": False, "status": "draft",
            "exposure_cohort": None, "running_time_calculation": {}, "excluded_variants": [],
        }  # fmt: skip
        assert {name: made[name] for name in defaults} == defaults

    @rule("5.1.2")
    def test_dates(self, api: Api) -> None:
        body = {"name": "n", "feature_flag_key": "k", "start_date": START}
        for end in (START, "2025-12-31"):
            error = api.refused("POST", "/experiments/", {**body, "end_date": end})
            assert (error["attr"], error["detail"]) == (None, "End date must be after start date")

    @rule("5.1.3")
    @pytest.mark.parametrize(
        ("dates", "status"),
        [
            ({"start_date": START}, "running"),
            ({"start_date": "2099-01-01"}, "running"),
            ({"start_date": START, "end_date": END}, "stopped"),
        ],
    )
    def test_state(self, api: Api, dates: dict[str, str], status: str) -> None:
        assert api.experiment(**dates)["status"] == status


class TestChanging:
    @rule("5.3.1")
    def test_patch_and_put(self, api: Api) -> None:
        made = api.experiment(description="d", archived=True)
        path = f"/experiments/{made['id']}/"
        after = patch(api, made, name="Other")
        changed = {name for name in made if made[name] != after[name]}
        assert changed == {"name", "updated_at"}
        assert api.refused("PUT", path, {"name": "n"})["attr"] == "feature_flag_key"
        put = api.ok("PUT", path, {"name": "n", "feature_flag_key": "button"})
        assert (put["archived"], put["description"]) == (False, "d")

    @rule("5.3.2")
    def test_the_key(self, api: Api) -> None:
        made = api.experiment()
        assert patch(api, made, feature_flag_key="button")
        error = refuse(api, made, feature_flag_key="other")
        assert (error["attr"], error["detail"]) == (
            None,
            "Can't update keys: get_feature_flag_key on Experiment",
        )

    @rule("5.3.3")
    def test_the_type(self, api: Api) -> None:
        made = api.experiment(type="web")
        assert patch(api, made, type="web", _create_in_folder="Elsewhere")
        assert refuse(api, made, type="product")["detail"] == "Can't update keys: type on Experiment"

    @rule("5.3.4")
    def test_global_filters(self, api: Api) -> None:
        made = api.experiment()
        assert patch(api, made, filters={"properties": []})
        error = refuse(api, made, filters={"properties": [{"key": "a", "value": 1}]})
        assert error["detail"] == "Experiments do not support global filter properties"

    @rule("5.3.5")
    def test_dates(self, api: Api) -> None:
        made = api.experiment(start_date=END)
        assert patch(api, made, end_date=START)["end_date"] == START
        assert (
            refuse(api, made, start_date=END, end_date=START)["detail"] == "End date must be after start date"
        )

    @rule("5.3.6", "5.3.7")
    def test_states(self, api: Api) -> None:
        made = api.experiment()
        assert made["feature_flag"]["active"] is False
        running = patch(api, made, start_date=START)
        assert (running["status"], running["feature_flag"]["active"]) == ("running", True)
        assert patch(api, made, conclusion="won")["conclusion"] == "won"
        assert patch(api, made, end_date=END)["status"] == "stopped"
        assert patch(api, made, end_date=None)["status"] == "running"
        assert patch(api, made, archived=True)["archived"] is True
        draft = patch(api, made, start_date=None, archived=False, conclusion=None)
        assert (draft["status"], draft["archived"], draft["conclusion"]) == ("draft", False, None)
        assert draft["feature_flag"]["active"] is True
        assert patch(api, made, parameters=None)["parameters"]["rollout_percentage"] == 100

    @rule("5.3.8")
    @pytest.mark.parametrize("dates", [{}, {"start_date": START}])
    def test_echo(self, api: Api, dates: dict[str, str]) -> None:
        body = {"name": "M", "query": MEAN}
        saved = api.ok("POST", "/experiment_saved_metrics/", body, status=201)["id"]
        made = api.experiment(
            metrics=[MEAN],
            saved_metrics_ids=[{"id": saved, "metadata": {"type": "secondary"}}],
            parameters={"minimum_detectable_effect": 10, "rollout_percentage": 50},
            type="web",
            **dates,
        )
        again = patch(api, made, **made)
        assert {name for name in made if made[name] != again[name]} <= {"updated_at"}
        assert again["feature_flag"]["version"] == 1


class TestDeleting:
    @rule("5.4.1", "5.4.2")
    def test_delete_and_restore(self, api: Api) -> None:
        made = api.experiment()
        path = f"/experiments/{made['id']}/"
        assert patch(api, made, deleted=True)["deleted"] is True
        assert api.refused("GET", path, status=404)
        assert api.refused("PATCH", path, {"name": "x"}, status=404)
        assert api.refused("PATCH", path, {"deleted": True}, status=404)
        for action in ("launch", "duplicate", "end", "create_exposure_cohort_for_experiment"):
            assert api.refused("POST", f"{path}{action}/", {}, status=404)
        assert api.ok("GET", "/experiments/")["count"] == 0
        assert patch(api, made, deleted=False, name="Back")["name"] == "Back"

    @rule("5.4.3")
    def test_restoring_needs_the_flag(self, api: Api) -> None:
        made = api.experiment()
        patch(api, made, deleted=True)
        api.ok("PATCH", f"/feature_flags/{made['feature_flag']['id']}/", {"deleted": True})
        assert refuse(api, made, deleted=False)["detail"] == (
            "Cannot restore experiment: the linked feature flag has been deleted. "
            "Restore the feature flag first, then restore the experiment."
        )

    @rule("5.4.4")
    def test_running(self, api: Api) -> None:
        made = api.experiment(start_date=START)
        assert patch(api, made, deleted=True)["feature_flag"]["active"] is True


class TestListing:
    @rule("5.6.1")
    def test_what_is_listed(self, api: Api) -> None:
        for name in ("one", "two", "away", "gone"):
            made = api.experiment(name, name=name)
            if name in ("away", "gone"):
                patch(api, made, **{"archived" if name == "away" else "deleted": True})
        assert names(api.ok("GET", "/experiments/")) == ["two", "one"]
        assert names(api.ok("GET", "/experiments/?archived=TRUE")) == ["away"]
        assert names(api.ok("GET", "/experiments/?archived=perhaps")) == ["two", "one"]

    @rule("5.6.2")
    def test_status(self, api: Api) -> None:
        api.experiment("draft", name="draft")
        api.experiment("running", name="running", start_date=START)
        api.experiment("stopped", name="stopped", start_date=START, end_date=END)
        paused = api.experiment("paused", name="paused", start_date=START)
        api.ok("POST", f"/experiments/{paused['id']}/pause/")
        for status in ("draft", "running", "paused", "stopped"):
            assert names(api.ok("GET", f"/experiments/?status={status.upper()}")) == [status]
        assert names(api.ok("GET", "/experiments/?status=complete")) == ["stopped"]
        assert api.ok("GET", "/experiments/?status=all")["count"] == 4
        assert api.ok("GET", "/experiments/?status=strange")["count"] == 4

    @rule("5.6.3")
    def test_ids(self, api: Api) -> None:
        made = api.experiment()
        author, flag = made["created_by"]["id"], made["feature_flag"]["id"]
        for spelled in (author, f"{author},99", f"[{author}]"):
            assert api.ok("GET", "/experiments/", params={"created_by_id": spelled})["count"] == 1
        assert api.ok("GET", "/experiments/?created_by_id=99")["count"] == 0
        assert api.ok("GET", f"/experiments/?feature_flag_id={flag}")["count"] == 1
        error = api.refused("GET", "/experiments/?feature_flag_id=x")
        assert error["detail"] == "feature_flag_id must be an integer"

    @rule("5.6.4")
    def test_search(self, api: Api) -> None:
        api.experiment("a", name="Button 100%")
        api.experiment("b", name="Banner")
        assert names(api.ok("GET", "/experiments/", params={"search": "bUTT"})) == ["Button 100%"]
        assert names(api.ok("GET", "/experiments/", params={"search": "%"})) == ["Button 100%"]

    @rule("5.6.5")
    def test_event(self, api: Api) -> None:
        action = api.ok("POST", "/actions/", {"name": "A", "steps": [{"event": "purchase"}]}, status=201)[
            "id"
        ]
        through_action = MEAN | {"source": {"kind": "ActionsNode", "id": action}}
        saved = api.ok("POST", "/experiment_saved_metrics/", {"name": "M", "query": MEAN}, status=201)["id"]
        api.experiment("a", name="inline", metrics=[MEAN])
        api.experiment("b", name="action", metrics_secondary=[through_action])
        api.experiment("c", name="saved", saved_metrics_ids=[{"id": saved, "metadata": {"type": "primary"}}])
        api.experiment(
            "d", name="other", metrics=[MEAN | {"source": {"kind": "EventsNode", "event": "purchased"}}]
        )
        assert sorted(names(api.ok("GET", "/experiments/?event=purchase"))) == ["action", "inline", "saved"]

    @rule("5.6.6")
    def test_order(self, api: Api) -> None:
        api.experiment("a", name="beta", start_date="2026-01-01", end_date="2026-01-05")
        api.experiment("b", name="Alpha", start_date="2026-01-03", end_date="2026-01-04")
        api.experiment("c", name="gamma")
        expected = {
            "name": ["Alpha", "beta", "gamma"],
            "-name": ["gamma", "beta", "Alpha"],
            "created_at": ["beta", "Alpha", "gamma"],
            "start_date": ["beta", "Alpha", "gamma"],
            "duration": ["Alpha", "beta", "gamma"],
            "-duration": ["gamma", "beta", "Alpha"],
            "-status": ["Alpha", "beta", "gamma"],
        }
        for order, wanted in expected.items():
            assert names(api.ok("GET", f"/experiments/?order={order}")) == wanted, order
        for order in ("updated_at", "end_date", "created_by", "-created_by", "status"):
            assert api.ok("GET", f"/experiments/?order={order}")["count"] == 3
        error = api.refused("GET", "/experiments/?order=feature_flag_key")
        assert error["detail"] == "Invalid order field: 'feature_flag_key'"

    @rule("5.6.7")
    @pytest.mark.files
    def test_statements(self, api: Api, statements: list[str]) -> None:
        def count() -> int:
            statements.clear()
            api.ok("GET", "/experiments/?limit=100")
            return len(statements)

        api.experiment("first", metrics=[MEAN])
        few = count()
        for number in range(20):
            api.experiment(f"more-{number}", metrics=[MEAN])
        assert 0 < count() == few


@pytest.fixture
def statements(api: Api, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that requests read with from now on."""
    seen: list[str] = []
    original = Database.read

    def read(self: Database, **options: Any) -> Any:
        context = original(self, **options)

        class Counted:
            def __enter__(self) -> Any:
                connection = context.__enter__()
                self.driver = connection.connection.driver_connection
                self.driver.set_trace_callback(note)
                return connection

            def __exit__(self, *error: Any) -> Any:
                self.driver.set_trace_callback(None)
                return context.__exit__(*error)

        return Counted()

    def note(statement: str) -> None:
        if threading.current_thread().name.startswith("hoglab-http"):  # not the background services
            seen.append(statement)

    monkeypatch.setattr(Database, "read", read)
    return seen
