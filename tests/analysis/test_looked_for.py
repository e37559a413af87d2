"""Metrics and exposure criteria are looked at before anybody else has to wait for who saves them."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tests.analysis.lab import PURCHASES, REVENUE, Lab

from hoglab.experiments.definitions.problems import DefinitionProblems


class Problems:
    """Looks at definitions, and whether others can write meanwhile."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self.looked: list[str] = []
        self.says: str | None = None

    def of(self, _connection: Any, _project_id: int, definition: Any) -> str | None:
        def write() -> None:
            with self._lab.database.write():
                done.set()

        done = threading.Event()
        threading.Thread(target=write, daemon=True).start()
        assert done.wait(10), "others wait"
        self.looked.append(definition.get("name", "criteria"))
        return self.says


@pytest.fixture
def problems(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Problems:
    found = Problems(lab)
    service = lab.service._experiments
    made = DefinitionProblems(lab.database, found.of, found.of)
    monkeypatch.setattr(service, "problems", made)
    monkeypatch.setattr(service._metrics, "_problem", made.of_metric)
    return found


CRITERIA = {
    "filterTestAccounts": False,
    "exposure_config": {"kind": "ExperimentEventExposureConfig", "event": "seen", "properties": []},
}


def test_experiments(lab: Lab, problems: Problems) -> None:
    experiment = lab.experiment(metrics=[REVENUE], metrics_secondary=[PURCHASES], exposure_criteria=CRITERIA)
    assert problems.looked == ["Revenue", "Purchase rate", "criteria"]
    problems.looked.clear()
    path = f"/experiments/{experiment['id']}/"
    changed = lab.ok(
        "PATCH", path, {"metrics": [*experiment["metrics"], {**REVENUE, "name": "More", "threshold": 2}]}
    )
    assert problems.looked == ["More"]
    problems.looked.clear()
    lab.ok("PATCH", path, {"metrics": changed["metrics"], "exposure_criteria": CRITERIA, "name": "Other"})
    lab.ok("POST", f"{path}launch/")
    lab.ok("POST", f"{path}duplicate/", {"feature_flag_key": "copied", "name": "Copy"})
    assert problems.looked == []


def test_shared_metrics(lab: Lab, problems: Problems) -> None:
    body = {"name": "Revenue", "query": {**REVENUE, "name": "Revenue"}}
    saved = lab.ok("POST", "/experiment_saved_metrics/", body, status=201)
    path = f"/experiment_saved_metrics/{saved['id']}/"
    lab.ok("PATCH", path, {"name": "Other", "query": saved["query"]})
    assert problems.looked == ["Revenue"]
    lab.ok("PATCH", path, {"query": {**saved["query"], "threshold": 2}})
    assert problems.looked == ["Revenue", "Revenue"]


def test_what_was_found_is_told(lab: Lab, problems: Problems) -> None:
    experiment = lab.experiment()
    saved = lab.ok("POST", "/experiment_saved_metrics/", {"name": "R", "query": REVENUE}, status=201)
    problems.says = "it is too large"
    body = {"name": "x", "feature_flag_key": "x", "metrics": [REVENUE]}
    for method, path, sent in (
        ("POST", "/experiments/", body),
        ("PATCH", f"/experiments/{experiment['id']}/", {"metrics_secondary": [REVENUE]}),
        ("PATCH", f"/experiments/{experiment['id']}/", {"exposure_criteria": CRITERIA}),
        ("POST", "/experiment_saved_metrics/", {"name": "S", "query": REVENUE}),
        ("PATCH", f"/experiment_saved_metrics/{saved['id']}/", {"query": {**saved["query"], "threshold": 2}}),
    ):
        answer = lab.call(method, path, sent)
        assert answer.status_code == 400, path
        assert answer.json()["detail"].endswith("it is too large"), path
