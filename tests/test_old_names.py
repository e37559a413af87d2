"""Old names of settings and metrics that keep working for a release."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from hoglab.http import metrics  # noqa: F401 - it registers the old names
from hoglab.old_names import METRICS, SETTINGS, OldMetricNames, renamed_variables
from hoglab.settings import PREFIX, Settings, SettingsError, load, unknown_variables

OLD, NEW = "HOGLAB_RESULTS_STATE_MAX_BYTES", "HOGLAB_AGGREGATE_CACHE_MAX_BYTES"


@pytest.fixture
def registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(
        OldMetricNames(registry, {"old_gauge": "gauge", "old_count": "count", "old_time": "time"})
    )
    return registry


@pytest.mark.parametrize(("old", "new"), SETTINGS.items())
def test_an_old_name_of_a_setting_stands_for_a_setting_of_today(old: str, new: str) -> None:
    assert new.removeprefix(PREFIX).lower() in Settings.model_fields
    assert old.removeprefix(PREFIX).lower() not in Settings.model_fields
    assert unknown_variables({old: "1"}) == {}
    assert renamed_variables({old: "1"}) == {old: new}
    assert renamed_variables({old.lower(): "1", new: "2"}) == {}


def test_a_setting_is_read_by_its_old_name_unless_the_new_one_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OLD, "17")
    assert load().aggregate_cache_max_bytes == 17
    assert load(aggregate_cache_max_bytes=19).aggregate_cache_max_bytes == 19
    monkeypatch.setenv(NEW, "18")
    assert load().aggregate_cache_max_bytes == 18


def test_an_error_in_a_setting_with_an_old_name_tells_the_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OLD, "many")
    with pytest.raises(SettingsError, match=NEW):
        load()


def test_metrics_are_exported_under_their_old_names_too(registry: CollectorRegistry) -> None:
    Gauge("gauge", "A gauge.", registry=registry).set(3)
    Counter("count", "A counter.", ["kind"], registry=registry).labels("a").inc(2)
    Histogram("time", "A histogram.", buckets=[1.0], registry=registry).observe(0.5)
    lines = generate_latest(registry).decode().splitlines()
    for line in (
        "# HELP old_gauge Old name of gauge, exported until the next release.",
        "gauge 3.0",
        "old_gauge 3.0",
        'count_total{kind="a"} 2.0',
        'old_count_total{kind="a"} 2.0',
        'old_time_bucket{le="1.0"} 1.0',
        "old_time_sum 0.5",
    ):
        assert line in lines


def test_a_metric_that_this_process_lacks_is_not_exported(registry: CollectorRegistry) -> None:
    assert generate_latest(registry) == b""


def test_every_old_name_of_a_metric_is_exported_by_a_server() -> None:
    import hoglab.app.server  # noqa: F401 - all rooms that have metrics

    text = generate_latest().decode()
    for old, new in METRICS.items():
        assert f"# TYPE {new}" in text
        assert f"# TYPE {old}" in text
