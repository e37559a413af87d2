"""The modules of analysis that a question passes through, and those that the documents list."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from tests.analysis.lab import REVENUE, Lab, bought, exposed
from tests.ways import listed, tracing

START = datetime(2026, 3, 8, 9, 0, tzinfo=UTC)


def test_a_question_runs_through_the_modules_that_the_document_lists(tmp_path: Path) -> None:
    with tracing("analysis") as trace:
        lab = Lab(tmp_path)
        experiment = lab.experiment(start_date=START.isoformat())
        lab.send([exposed("ann", "control", START), bought("ann", START, 5), exposed("bob", "test", START)])
        trace.is_on = True
        lab.query({"kind": "ExperimentQuery", "experiment_id": experiment["id"], "metric": REVENUE})
        trace.is_on = False
        lab.close()
    assert trace.modules == listed("How a question is answered", "design/results.md")
    walk = {name.removeprefix("analysis/") for name in listed("4. Results of an experiment")}
    assert walk <= trace.modules
