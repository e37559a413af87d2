"""docs/flags.md and docs/metrics.md: they have every field, and a server accepts every example without a warning."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.contract.openapi.conftest import World

from hoglab.experiments.definitions import metrics
from hoglab.experiments.wire import setting_schemas
from hoglab.flags import filter_schemas
from hoglab.http.fields.property_filters import WirePropertyFilter

DOCS = Path(__file__).parents[3] / "docs"
EXAMPLE = re.compile(r"```json\n(.*?)```", re.DOTALL)
PAGES: dict[str, list[type[BaseModel]]] = {
    "flags.md": [
        WirePropertyFilter,
        filter_schemas.FlagFilters,
        filter_schemas.FlagVariants,
        filter_schemas.FlagVariant,
        filter_schemas.ReleaseGroup,
        filter_schemas.HeldOut,
    ],
    "metrics.md": [
        metrics.MeanMetric,
        metrics.FunnelMetric,
        metrics.RatioMetric,
        metrics.RetentionMetric,
        metrics.QuantileMetric,
        metrics.OutlierHandling,
        metrics.BreakdownFilter,
        metrics.Breakdown,
        metrics.EventsNode,
        metrics.ActionsNode,
        metrics.ExperimentDataWarehouseNode,
        setting_schemas.ExposureCriteria,
        setting_schemas.ExposureConfig,
        setting_schemas.StatsConfig,
        setting_schemas.BayesianSettings,
        setting_schemas.FrequentistSettings,
        setting_schemas.PriorSettings,
        setting_schemas.CupedSettings,
    ],
}
FIELDS = {
    "role": "metrics_secondary",
    "metric_type": "metrics",
    "filterTestAccounts": "exposure_criteria",
    "method": "stats_config",
}
"""What of an experiment an example is, by a key that only such a one has."""


def examples(page: str) -> list[Any]:
    return [json.loads(text) for text in EXAMPLE.findall((DOCS / page).read_text())]


def written(page: str) -> set[str]:
    """Every name that stands in a table of a page, alone or in a path."""
    rows = [
        line for line in (DOCS / page).read_text().splitlines() if line.startswith("|") or "kept for" in line
    ]
    names = {name for row in rows for name in re.findall(r"`([A-Za-z_.\[\]]+)`", row)}
    return {part.removesuffix("[]") for name in names for part in name.split(".")}


@pytest.mark.parametrize("page", PAGES)
def test_every_field_is_there(page: str) -> None:
    fields = {name for model in PAGES[page] for name in model.model_fields}
    assert fields - written(page) <= conditions(page)


def conditions(page: str) -> set[str]:
    """What a page refers to another for."""
    text = (DOCS / page).read_text()
    return set(WirePropertyFilter.model_fields) if "flags.md#conditions" in text else set()


@pytest.mark.parametrize("body", examples("flags.md"))
def test_a_server_takes_the_flags(world: World, body: dict[str, Any]) -> None:
    api = world.laboratory.api()
    group = {"groups": [{"rollout_percentage": 100}]}
    other = api.ok("POST", "/feature_flags/", {"key": "beta", "filters": group}, status=201)
    made = api.ok("POST", "/feature_flags/", {"key": "documented", "filters": body}, status=201)
    assert "warnings" not in made
    kept = json.loads(json.dumps(body).replace('"beta"', f'"{other["id"]}"'))  # flags are kept by their ids
    assert list(missing(kept, made["filters"])) == []


@pytest.mark.parametrize("body", examples("metrics.md"))
def test_a_server_takes_what_experiments_say(world: World, body: dict[str, Any]) -> None:
    api = world.laboratory.api()
    field = next(field for key, field in FIELDS.items() if key in body)
    value = [body] if field.startswith("metrics") else body
    made = api.experiment("documented", **{field: value})
    assert "warnings" not in made
    assert list(missing(value, made[field])) == []


def missing(wanted: Any, found: Any) -> Iterator[str]:
    """What of an example did not stay."""
    if isinstance(wanted, dict):
        for name, each in wanted.items():
            if name not in found:
                yield name
            else:
                yield from missing(each, found[name])
    elif isinstance(wanted, list):
        for one, other in zip(wanted, found, strict=True):
            yield from missing(one, other)
    elif wanted != found:
        yield f"{found!r}, not {wanted!r}"


def test_every_kind_of_metric_has_an_example() -> None:
    kinds = {example["metric_type"] for example in examples("metrics.md") if "metric_type" in example}
    assert kinds == {"mean", "funnel", "ratio", "retention", "quantile"}


@pytest.mark.parametrize("page", PAGES)
def test_examples_show_what_decides(page: str) -> None:
    """Every field but those that are made by the server, kept for clients, or need something of the project."""
    plain = {name for example in examples(page) for name in keys(example)}
    text = (DOCS / page).read_text()
    lines = [line for line in text.splitlines() if "ept for clients" in line or "Set by the server" in line]
    lines += [line for line in text.splitlines() if "DataWarehouseNode`:" in line or "ActionsNode" in line]
    lines += [line for line in text.splitlines() if "exposure was frozen" in line]
    told = {name.rpartition(".")[2] for line in lines for name in re.findall(r"`([A-Za-z_.\[\]]+)`", line)}
    fields = {name for model in PAGES[page] for name in model.model_fields}
    assert fields - plain - told - {"group_type_index", "math_property_type", "negation"} == set()


def keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, each in value.items():
            yield name
            yield from keys(each)
    elif isinstance(value, list):
        for each in value:
            yield from keys(each)
