"""A client that openapi-python-client makes from our document takes an experiment from draft to its conclusion."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.waiting import PATIENCE_S

from hoglab.demo.server import ChildServer

DOCUMENT = Path(__file__).parents[2] / "docs" / "api" / "openapi.json"
PACKAGE = "hoglab_client"
CONFIG = {
    "post_hooks": [],  # the code is run, not read
    "content_type_overrides": {"image/svg+xml": "application/octet-stream"},  # the icon of a function
}
USERS = 40
POLL_S = 0.05

pytestmark = [pytest.mark.clients]


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], ModuleType]]:
    """The generator's package for our document, made without a warning; gives its modules by name."""
    folder = tmp_path_factory.mktemp("generated")
    config = folder / "config.json"
    config.write_text(json.dumps(CONFIG))
    command = [
        sys.executable,
        "-m",
        "openapi_python_client",
        "generate",
        "--meta",
        "none",
        "--fail-on-warning",
    ]
    paths = ["--path", str(DOCUMENT), "--config", str(config), "--output-path", str(folder / PACKAGE)]
    made = subprocess.run(
        [*command, *paths], capture_output=True, text=True, check=False, env={**os.environ, "NO_COLOR": "1"}
    )
    assert made.returncode == 0, made.stdout + made.stderr
    sys.path.insert(0, str(folder))
    yield lambda name: importlib.import_module(f"{PACKAGE}.{name}")
    sys.path.remove(str(folder))


class Client:
    """Calls operations and makes models by their generated names."""

    def __init__(self, module: Callable[[str], ModuleType], http: Any) -> None:
        self.module = module
        self.models = module("models")
        self.http = http

    def call(self, operation: str, *path: Any, **arguments: Any) -> Any:
        """The answer of an operation (``tag.name``), which must be the success that the document describes."""
        answer = self.module(f"api.{operation}").sync_detailed(*path, client=self.http, **arguments)
        assert answer.status_code in (200, 201), answer.content
        return answer.parsed


@pytest.fixture(scope="module")
def client(generated: Callable[[str], ModuleType], shared_server: ChildServer) -> Iterator[Client]:
    server = {"base_url": shared_server.url, "token": shared_server.api_key}
    with generated("client").AuthenticatedClient(**server, raise_on_unexpected_status=True) as http:
        yield Client(generated, http)


def test_an_experiment_from_draft_to_conclusion(client: Client) -> None:
    models = client.models
    project = client.call(
        "organizations.organizations_create_project", "@current", body=models.ProjectIn(name="Generated")
    )
    number = str(project.id)

    purchases = {
        "kind": "ExperimentMetric",
        "metric_type": "mean",
        "name": "Purchases",
        "source": {"kind": "EventsNode", "event": "purchase"},
    }
    draft = client.call(
        "experiments.experiments_create_experiment",
        number,
        body=models.ExperimentCreate(
            name="Button",
            feature_flag_key="button",
            description="Does green sell more?",
            metrics=[models.MeanMetric.from_dict(purchases)],
        ),
    )
    assert (draft.name, draft.status, draft.feature_flag.active) == ("Button", "draft", False)
    running = client.call("experiments.experiments_launch", number, draft.id)
    assert (running.status, running.feature_flag.active) == ("running", True)
    assert running.start_date.utcoffset() is not None

    variants = {}
    for user in (f"user-{position}" for position in range(USERS)):
        asked = models.FlagsEvaluateBody(token=project.api_token, distinct_id=user)
        answer = client.call("flag_evaluation.flags_evaluate", body=asked, v="2").to_dict()
        variants[user] = answer["flags"]["button"]["variant"]
    assert set(variants.values()) == {"control", "test"}

    batch = [_event(models, user, variant) for user, variant in variants.items()]
    batch += [_event(models, user, None) for user, variant in variants.items() if variant == "test"]
    client.call("capture.capture_batch", body=models.CaptureBatchBodyType0(project.api_token, batch))
    query = {"kind": "ExperimentQuery", "experiment_id": draft.id, "metric": running.metrics[0].to_dict()}
    body = models.QueryBody.from_dict({"query": query, "refresh": "force_blocking"})

    def results() -> dict[str, Any]:
        found: dict[str, Any] = client.call("query.query_query", number, body=body).to_dict()
        return found

    found = _until(results, lambda found: _samples(found) == USERS)
    baseline, (test,) = found["baseline"], found["variant_results"]
    assert (baseline["key"], test["key"]) == ("control", "test")
    assert (baseline["sum"], test["sum"]) == (0, list(variants.values()).count("test"))

    ended = client.call("experiments.experiments_end", number, draft.id, body=models.EndBody())
    assert (ended.status, ended.conclusion) == ("stopped", None)
    concluded = client.call(
        "experiments.experiments_patch_experiment",
        number,
        draft.id,
        body=models.ExperimentPatch(
            conclusion=models.ExperimentPatchConclusionType0.WON, conclusion_comment="Green it is."
        ),
    )
    assert (concluded.conclusion, concluded.conclusion_comment) == ("won", "Green it is.")
    assert concluded.end_date == ended.end_date
    status = models.ExperimentsListExperimentsStatus.STOPPED
    page = client.call("experiments.experiments_list_experiments", number, status=status)
    assert [(each.id, each.conclusion) for each in page.results] == [(draft.id, "won")]


def test_the_fields_of_queries_have_names(client: Client) -> None:
    """Each kind is a model of its own, of which a body is made, and which a body is read as."""
    models = client.models
    series = models.TrendsSeries(kind="EventsNode", event="paid", math=models.TrendsSeriesMath.DAU)
    minutes = models.TrendsQuestionInterval.MINUTE
    trends = models.TrendsQuestion(kind="TrendsQuery", series=[series], interval=minutes)
    sent = models.QueryBody(query=trends).to_dict()["query"]
    assert (sent["kind"], sent["interval"], sent["series"][0]["math"]) == ("TrendsQuery", "minute", "dau")
    source = {"kind": "EventsNode", "event": "loaded", "math": "avg", "math_property": "seconds"}
    metric = {"kind": "ExperimentMetric", "metric_type": "quantile", "source": source, "quantile_level": 0.9}
    query = {"kind": "ExperimentQuery", "experiment_id": 7, "metric": metric}
    read = models.QueryBody.from_dict({"query": query}).query
    assert (type(read).__name__, read.experiment_id, read.metric.quantile_level) == (
        "ExperimentQuestion",
        7,
        0.9,
    )
    for kind, name in (
        ("ExperimentExposureQuery", "ExposureQuestion"),
        ("ExperimentPlanQuery", "PlanQuestion"),
        ("ExperimentSimulationQuery", "SimulationQuestion"),
        ("ExperimentTrendsQuery", "FormerTrendsQuestion"),
        ("ExperimentFunnelsQuery", "FormerFunnelsQuestion"),
    ):
        assert type(models.QueryBody.from_dict({"query": {"kind": kind}}).query).__name__ == name


def test_the_fields_of_metrics_and_results_have_names(client: Client) -> None:
    models = client.models
    source = {"kind": "EventsNode", "event": "loaded", "math": "avg", "math_property": "seconds"}
    slow = models.QuantileMetric.from_dict(
        {"kind": "ExperimentMetric", "metric_type": "quantile", "source": source, "quantile_level": 0.9}
    )
    project = client.call(
        "organizations.organizations_create_project", "@current", body=models.ProjectIn(name="Typed")
    )
    body = models.ExperimentCreate(name="Typed", feature_flag_key="typed", metrics=[slow])
    made = client.call("experiments.experiments_create_experiment", str(project.id), body=body)
    assert isinstance(made.metrics[0], models.QuantileMetric)
    assert (made.metrics[0].quantile_level, made.metrics[0].source.event) == (0.9, "loaded")
    sums = ("step_counts", "denominator_sum", "denominator_sum_squares", "numerator_denominator_sum_product",
            "covariate_sum", "covariate_sum_squares", "covariate_sum_product")  # fmt: skip
    row = models.VariantRowOut.from_dict({**dict.fromkeys(sums), "key": "test", "method": "frequentist",
                                          "number_of_samples": 2, "sum": 1, "sum_squares": 1, "significant": False,
                                          "p_value": 0.3, "validation_failures": [],
                                          "quantile_level": 0.9})  # fmt: skip
    assert (row.p_value, row.quantile_level) == (0.3, 0.9)


def test_a_refusal_is_the_error_of_the_document(client: Client) -> None:
    models = client.models
    operation = client.module("api.experiments.experiments_create_experiment")
    body = models.ExperimentCreate(name="n", feature_flag_key="x y")
    answer = operation.sync_detailed("1", client=client.http, body=body)
    assert answer.status_code == 400
    assert isinstance(answer.parsed, models.Error)
    assert (answer.parsed.code, answer.parsed.attr) == ("invalid_key", "key")


def _event(models: ModuleType, user: str, variant: str | None) -> Any:
    """An exposure to a variant, or a purchase."""
    item = models.CaptureBatchBodyType0BatchItem(
        event="purchase" if variant is None else "$feature_flag_called", distinct_id=user
    )
    if variant is not None:
        properties = {"$feature_flag": "button", "$feature_flag_response": variant}
        item.properties = models.CaptureBatchBodyType0BatchItemProperties.from_dict(properties)
    return item


def _samples(found: dict[str, Any]) -> int:
    groups = [found.get("baseline") or {}, *(found.get("variant_results") or [])]
    return sum(group.get("number_of_samples", 0) for group in groups)


def _until(ask: Callable[[], dict[str, Any]], good: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    deadline = time.monotonic() + PATIENCE_S
    while not good(found := ask()):
        assert time.monotonic() < deadline, found
        time.sleep(POLL_S)
    return found
