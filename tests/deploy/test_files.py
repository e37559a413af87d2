"""The files of docs/deploy: programs that check such files find nothing, and what they name exists."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client import REGISTRY
from tests.cluster import cluster
from tests.deploy.machine import ROOT, block, docker_compose, needed, told
from tests.waiting import PATIENCE_S

import hoglab.app
import hoglab.storage.event_log.kafka
import hoglab.storage.event_store.clickhouse.store  # noqa: F401 - these define the metrics of a server
from hoglab.capture.reference import capture_paths
from hoglab.delivery.webhooks.reference import webhook_paths
from hoglab.flags.api.reference import flag_paths
from hoglab.settings import Settings

DEPLOY = ROOT / "docs" / "deploy"
SETTINGS = {f"HOGLAB_{name.upper()}" for name in Settings.model_fields}


def test_every_setting_is_known() -> None:
    for file in (each for each in DEPLOY.rglob("*") if each.is_file()):
        assert set(re.findall(r"\bHOGLAB_[A-Z_]+", file.read_text())) <= SETTINGS, file.name


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    """As it is, but for the path of a program that has to be there."""
    program = needed("systemd-analyze", "systemd")
    unit = (
        (DEPLOY / "hoglab@.service")
        .read_text()
        .replace("/opt/hoglab/bin/", f"{Path(sys.executable).parent}/")
    )
    (tmp_path / "hoglab@.service").write_text(unit)
    checked = subprocess.run(
        [program, "verify", "--man=no", str(tmp_path / "hoglab@.service")],
        capture_output=True, text=True, check=False, env={**os.environ, "SYSTEMD_LOG_LEVEL": "warning"},
    )  # fmt: skip
    found = [line for line in checked.stderr.splitlines() if "hoglab@" in line]
    assert (checked.returncode, found) == (0, []), checked.stderr


def test_the_alerts_are_rules(tmp_path: Path) -> None:
    program = needed("promtool", "prometheus")
    command = block("alerts").strip().replace("promtool", program, 1)
    checked = subprocess.run(shlex.split(command), cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    series = [
        {"series": 'up{job="hoglab",role="edge",instance="a"}', "values": "1 0x20"},
        {
            "series": 'hoglab_problems{component="event log",blocking="yes",instance="b"}',
            "values": "0x5 1x20",
        },
        {"series": 'hoglab_http_requests_total{route="/batch",status="200"}', "values": "0+100x30"},
        {"series": 'hoglab_http_requests_total{route="/batch",status="503"}', "values": "0+10x30"},
        {"series": 'hoglab_ingestion_lag_seconds{instance="c"}', "values": "0 400x30"},
        {"series": 'hoglab_delivery_oldest_due_seconds{instance="d"}', "values": "10x30"},
        {"series": 'hoglab_database_connections{instance="c"}', "values": "90x30"},
        {
            "series": 'hoglab_event_log_partition_lag_seconds{partition="0",instance="e"}',
            "values": "0 400x30",
        },
        {"series": 'hoglab_event_log_partition_lag_seconds{partition="1",instance="e"}', "values": "1x30"},
        {"series": 'hoglab_event_log_partition_lag_seconds{partition="2",instance="e"}', "values": "1x30"},
        {"series": 'hoglab_event_log_partition_waiting{partition="0",instance="e"}', "values": "1x30"},
        {"series": 'hoglab_event_log_partition_waiting{partition="1",instance="e"}', "values": "1x30"},
        {"series": 'hoglab_event_log_partitions_owned{role="ingest",instance="e"}', "values": "1x30"},
        {"series": 'hoglab_event_log_partitions_owned{role="edge",instance="f"}', "values": "0x30"},
        {"series": 'hoglab_event_log_fenced_writes_total{instance="e"}', "values": "0+1x30"},
        {"series": 'hoglab_event_store_parts{instance="e"}', "values": "1200x30"},
        {"series": 'hoglab_event_store_repairs_total{instance="e"}', "values": "0+1x30"},
        {"series": 'hoglab_database_connections_most{instance="c"}', "values": "97x30"},
    ]
    fires = {"HoglabProcessDown", "HoglabNotReady", "HoglabEventsRefused", "HoglabIngestionLate"}
    fires |= {
        "HoglabDatabaseConnections",
        "HoglabPartitionLate",
        "HoglabPartitionHot",
        "HoglabPartitionsIdle",
    }
    fires |= {"HoglabFencedWrites", "HoglabEventStoreParts"}
    rules = {rule["alert"]: rule for rule in _rules()}
    assert fires < set(rules)
    asked = [
        {"expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}}) or vector(0)', "eval_time": "20m",
         "exp_samples": [{"labels": "{}", "value": int(name in fires)}]}
        for name in rules
    ]  # fmt: skip
    tests = [{"interval": "1m", "input_series": series, "promql_expr_test": asked}]
    (tmp_path / "tests.yaml").write_text(
        yaml.safe_dump(
            {"rule_files": [str(DEPLOY / "alerts.yaml")], "evaluation_interval": "1m", "tests": tests}
        )
    )
    tried = subprocess.run(
        [program, "test", "rules", str(tmp_path / "tests.yaml")], capture_output=True, text=True, check=False
    )
    assert tried.returncode == 0, tried.stdout + tried.stderr


def _rules() -> list[dict[str, Any]]:
    return [
        rule
        for group in yaml.safe_load((DEPLOY / "alerts.yaml").read_text())["groups"]
        for rule in group["rules"]
    ]


def test_every_alert_is_documented() -> None:
    documented = set(re.findall(r"\bHoglab[A-Z][A-Za-z]+\b", told()))
    assert documented == {rule["alert"] for rule in _rules()}


def _panels() -> list[dict[str, Any]]:
    board: dict[str, Any] = json.loads((DEPLOY / "grafana.json").read_text())
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def _expressions() -> list[str]:
    """What the board asks Prometheus for, with values in place of Grafana's variables."""
    return [
        target["expr"].replace("$__rate_interval", "5m").replace("$instance", ".*")
        for panel in _panels()
        for target in panel["targets"]
    ]


def test_the_board_asks_what_prometheus_understands(tmp_path: Path) -> None:
    program = needed("promtool", "prometheus")
    expressions = _expressions()
    assert not [expression for expression in expressions if "$" in expression]
    rules = [
        {"record": f"asked:{number}", "expr": expression} for number, expression in enumerate(expressions)
    ]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "board", "rules": rules}]}))
    checked = subprocess.run(
        [program, "check", "rules", str(tmp_path / "rules.yaml")], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr


def test_panels_of_the_board_lie_side_by_side() -> None:
    panels = json.loads((DEPLOY / "grafana.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells


def test_every_metric_exists(postgres_url: str, tmp_path: Path) -> None:
    """A server on PostgreSQL shows what rules and documents name, once it was asked for something."""
    with cluster(tmp_path, postgres_url) as server:
        process = server.add("all", "all")
        server.start("all")
        assert httpx.post(f"{process.url}/batch/", json={}, timeout=PATIENCE_S).status_code in (400, 401)
        shown = httpx.get(f"{process.url}/metrics", timeout=PATIENCE_S).text
    families = set(re.findall(r"^# TYPE (\w+) ", shown, flags=re.MULTILINE))
    # Of ClickHouse's store and of Kafka's log, which that server does not have.
    elsewhere = ("hoglab_event_store_", "hoglab_event_log_partition_")
    families |= {family for family in REGISTRY._names_to_collectors if family.startswith(elsewhere)}
    asked = [rule["expr"] for rule in _rules()] + _expressions()
    named = {name.removesuffix("_bucket") for name in re.findall(r"\bhoglab_[a-z_]+\b", "".join(asked))}
    named |= set(re.findall(r"`(hoglab_[a-z_]+)[`{]", told()))
    named -= {"hoglab_queue"}  # a schema
    assert named
    assert named <= families
    labels = {"job", "instance", "role"} | {
        "component",
        "blocking",
    }  # of who scrapes; of problems, while there are some
    labels |= set(re.findall(r'[{,](\w+)="', shown))
    labels |= {
        label for metric in REGISTRY._collector_to_names for label in getattr(metric, "_labelnames", ())
    }
    used = {label for text in asked for label in re.findall(r'(\w+)=~?"', text)}
    grouped = [found for text in asked for found in re.findall(r"by \(([^)]*)\)", text)]
    used |= {label.strip() for labels_of in grouped for label in labels_of.split(",")}
    assert used <= labels
    assert 'route="/batch"' in shown  # as the rule of refused events says it
    assert re.search(r"^hoglab_database_connections [1-9]", shown, flags=re.MULTILINE)


def test_the_proxy_hands_everything_of_sdks_to_edges() -> None:
    locations = re.findall(
        r"location ~ (\S+) \{\s+proxy_pass http://hoglab_edges;",
        (DEPLOY / "hoglab-locations.conf").read_text(),
    )
    assert len(locations) == 2
    asked = [
        *capture_paths(),
        *flag_paths(),
        *webhook_paths(),
        "/array/phc_x/config.js",
        "/static/array.js",
        "/s/",
    ]
    for path in asked:
        assert any(re.search(location, path) for location in locations), path
    for path in ("/", "/ui/", "/api/projects/1/", "/api/projects/1/feature_flags/", "/_readyz", "/session"):
        assert not any(re.search(location, path) for location in locations), path


@pytest.mark.parametrize("commands", ["containers", "cluster-containers"])
def test_docker_compose_accepts_the_files(commands: str, tmp_path: Path) -> None:
    """The commands of the documents, with the plugin or the program that was before it."""
    (tmp_path / "bin").mkdir()
    shim = tmp_path / "bin" / "docker"
    shim.write_text(f'#!/bin/sh\nshift\nexec {shlex.join(docker_compose())} "$@"\n')
    shim.chmod(0o755)
    shutil.copytree(DEPLOY, tmp_path / "docs" / "deploy")
    checked = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block(commands)],
        cwd=tmp_path, env={**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize(
    "file", ["compose.yaml", "compose-common.yaml", "compose-cluster.yaml", "alerts.yaml"]
)
def test_no_key_is_given_twice(file: str) -> None:
    from ruamel.yaml import YAML

    YAML(typ="safe").load((DEPLOY / file).read_text())
