"""The Helm chart: what Helm renders from several values is what Kubernetes takes, and fits the server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, get_args

import pytest
import yaml
from tests.deploy.machine import ROOT

import hoglab
from hoglab.settings import PREFIX, SECRET, RoleName, Settings

helm = pytest.importorskip("helm_python", reason="needs helm-python-sdk, which has no wheel for this machine")
kubernetes = pytest.importorskip("kubernetes_validate")

CHART = ROOT / "docs" / "deploy" / "helm" / "hoglab"
OLDEST, NEWEST = "1.30", "1.37"
"""Versions of Kubernetes: the oldest that the chart allows, and the newest whose schemas are there."""
WITHOUT_DIRECTORY = {"edge", "deliver"}
MINIMAL = {"siteUrl": "https://hoglab.example.com"}
PEER = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}
EVERYTHING = {
    **MINIMAL,
    "image": {"repository": "registry.example.com/hoglab", "tag": "9", "pullSecrets": ["registry"]},
    "secretName": "other",
    "settings": {"HOGLAB_LOG_LEVEL": "debug", "HOGLAB_FETCH_TIMEOUT_S": "5"},
    "roles": {
        **{role: {"autoscaling": {"enabled": True}} for role in ("api", "edge", "ingest", "analysis")},
        "deliver": {
            "autoscaling": {"enabled": True},
            "settings": {"HOGLAB_FUNCTION_PROCESSES": "4", "HOGLAB_LOG_LEVEL": "info"},
        },
    },
    "ingress": {"enabled": True, "className": "nginx", "host": "hoglab.example.com", "tlsSecretName": "tls"},
    "networkPolicy": {"enabled": True, "ingressFrom": [PEER], "metricsFrom": [{"podSelector": {}}]},
    "podMonitor": {"enabled": True},
    "nodeSelector": {"pool": "hoglab"},
    "tolerations": [{"key": "pool", "operator": "Exists"}],
}


def rendered(values: dict[str, Any], release: str = "hoglab") -> list[dict[str, Any]]:
    """The objects that Helm makes of the chart."""
    with helm.Chart.load(str(CHART)) as chart:
        chart.validate_schema(values)
        texts = chart.render(values, name=release, namespace="somewhere")
    return [
        each
        for name, text in texts.items()
        if name.endswith(".yaml")
        for each in yaml.safe_load_all(text)
        if each is not None
    ]


@pytest.fixture(scope="module", params=["minimal", "everything"])
def objects(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return rendered(MINIMAL if request.param == "minimal" else EVERYTHING)


@pytest.fixture(scope="module")
def everything() -> list[dict[str, Any]]:
    return rendered(EVERYTHING)


def of_kind(objects: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    """The objects of a kind by their names, without that of the release."""
    return {
        each["metadata"]["name"].removeprefix("hoglab-"): each for each in objects if each["kind"] == kind
    }


def pods(objects: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The specification of each kind of pod, with its role."""
    for kind in ("Deployment", "Job"):
        for name, each in of_kind(objects, kind).items():
            yield name, each["spec"]["template"]["spec"]


@pytest.mark.parametrize("values", [MINIMAL, EVERYTHING], ids=["minimal", "everything"])
def test_helm_finds_nothing_to_complain_about(values: dict[str, Any]) -> None:
    report = helm.lint(str(CHART), values, strict=True)
    assert report["errors"] == []
    assert [each["error"] for each in report["messages"]] == ["icon is recommended"]


@pytest.mark.parametrize(
    ("values", "version"), [(MINIMAL, NEWEST), (EVERYTHING, OLDEST)], ids=["newest", "oldest"]
)
def test_kubernetes_takes_every_object(values: dict[str, Any], version: str) -> None:
    known = [each for each in rendered(values) if each["kind"] != "PodMonitor"]  # the Prometheus operator's
    assert len(known) > 10
    for each in known:
        kubernetes.validate(each, version, strict=True)
    with pytest.raises(kubernetes.ValidationError):
        kubernetes.validate({**known[0], "speck": {}}, version, strict=True)


def test_there_is_nothing_beyond_what_was_asked_for() -> None:
    kinds = sorted({each["kind"] for each in rendered(MINIMAL)})
    assert kinds == ["Deployment", "Job", "PodDisruptionBudget", "Service"]
    more = {each["kind"] for each in rendered(EVERYTHING)} - set(kinds)
    assert more == {"HorizontalPodAutoscaler", "Ingress", "NetworkPolicy", "PodMonitor"}


def test_every_role_of_the_shape_has_what_it_needs(objects: list[dict[str, Any]]) -> None:
    deployments = of_kind(objects, "Deployment")
    # The two that are several in one process are for fewer processes than a chart is for.
    assert set(deployments) == set(get_args(RoleName)) - {"all", "core"}
    for role, deployment in deployments.items():
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        assert container["args"][:2] == ["hoglab", "serve"]
        options = dict(word.removeprefix("--").split("=") for word in container["args"][2:])
        assert options.pop("role") == role
        assert ("data" in options) == (role not in WITHOUT_DIRECTORY)
        mounted = {each["mountPath"] for each in container["volumeMounts"]}
        assert ("/var/lib/hoglab" in mounted) == ("data" in options)
        assert "/tmp" in mounted  # noqa: S108 - of the pod
        for probe, path in (("startup", "livez"), ("liveness", "livez"), ("readiness", "readyz")):
            assert container[f"{probe}Probe"]["httpGet"] == {"path": f"/_{path}", "port": "http"}
        assert set(options) <= {"host", "port", "data"}
        assert deployment["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"] == role
    assert set(of_kind(objects, "PodDisruptionBudget")) == set(deployments)
    assert set(of_kind(objects, "Service")) == {"api", "edge"}


def test_pods_may_do_little_and_hold_no_secret(objects: list[dict[str, Any]]) -> None:
    found = dict(pods(objects))
    assert len(found) == 6
    for pod in found.values():
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False  # a Service called hoglab would set HOGLAB_PORT
        assert pod["securityContext"]["runAsNonRoot"] is True
        [container] = pod["containers"]
        allowed = container["securityContext"]
        assert allowed["readOnlyRootFilesystem"] is True
        assert allowed["allowPrivilegeEscalation"] is False
        assert allowed["capabilities"] == {"drop": ["ALL"]}
        assert {"requests", "limits"} == set(container["resources"])
        given = {each["name"].removeprefix(PREFIX).lower() for each in container["env"]}
        assert not given & SECRET
        assert given <= Settings.model_fields.keys() | {"pythondontwritebytecode"}
        assert len(container["envFrom"]) == 1
    image = (ROOT / "docs/deploy/Dockerfile").read_text()
    assert f"--uid {pod['securityContext']['runAsUser']} " in image


def test_requests_reach_a_pod_that_ends_no_more() -> None:
    for role, pod in pods(rendered(MINIMAL)):
        [container] = pod["containers"]
        assert ("lifecycle" in container) == (role in ("api", "edge"))
        if role != "migrate":
            sleep = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {"seconds": 0})["seconds"]
            assert pod["terminationGracePeriodSeconds"] >= sleep + 45  # as systemd has it


def test_values_of_a_role_go_before_those_of_all(everything: list[dict[str, Any]]) -> None:
    def level(role: str) -> str:
        [container] = dict(pods(everything))[role]["containers"]
        return next(each["value"] for each in container["env"] if each["name"] == "HOGLAB_LOG_LEVEL")

    assert (level("deliver"), level("edge")) == ("info", "debug")
    for _, pod in pods(everything):
        assert pod["containers"][0]["image"] == "registry.example.com/hoglab:9"
        assert pod["containers"][0]["envFrom"] == [{"secretRef": {"name": "other"}}]
        assert (pod["nodeSelector"], pod["imagePullSecrets"]) == ({"pool": "hoglab"}, [{"name": "registry"}])


def test_deployments_grow_by_what_they_lack(everything: list[dict[str, Any]]) -> None:
    scalers = of_kind(everything, "HorizontalPodAutoscaler")
    assert set(scalers) == set(of_kind(everything, "Deployment"))
    by: dict[str, str] = {}
    for role, scaler in scalers.items():
        spec = scaler["spec"]
        assert spec["scaleTargetRef"]["name"] == f"hoglab-{role}"
        assert spec["minReplicas"] <= spec["maxReplicas"]
        [metric] = spec["metrics"]
        by[role] = (
            metric["resource"]["name"] if "resource" in metric else metric["external"]["metric"]["name"]
        )
        assert "replicas" not in of_kind(everything, "Deployment")[role]["spec"]
    assert {role for role, what in by.items() if what == "cpu"} == {"api", "edge", "analysis"}
    assert by["ingest"] == "hoglab_ingestion_lag_seconds"
    assert by["deliver"] == "hoglab_delivery_oldest_due_seconds"
    adapter = (CHART / "README.md").read_text()
    for name in (by["ingest"], by["deliver"]):
        [pattern] = re.findall(r'__name__=~"([^"]+)"', adapter)
        assert re.fullmatch(pattern, name)


def test_the_ingress_hands_out_paths_as_nginx_does(everything: list[dict[str, Any]]) -> None:
    """Both ways: each location of hoglab-locations.conf is a path, and there is no other."""
    nginx = (ROOT / "docs/deploy/hoglab-locations.conf").read_text()
    [ingress] = of_kind(everything, "Ingress").values()
    [rule] = ingress["spec"]["rules"]
    paths = {
        (each["path"], each["pathType"]): each["backend"]["service"]["name"] for each in rule["http"]["paths"]
    }
    first, second = re.findall(r"location ~ \^(\S+) \{\s+proxy_pass http://hoglab_edges;", nginx)
    prefixes = re.fullmatch(r"/\((.*)\)\(/\|\$\)", first)
    exact = re.fullmatch(r"/api/\((.*)\)/\?\$", second)
    assert prefixes is not None
    assert exact is not None
    expected = {(f"/{name}", "Prefix"): "hoglab-edge" for name in prefixes[1].split("|")}
    expected |= {
        (f"/api/{name}{end}", "Exact"): "hoglab-edge" for name in exact[1].split("|") for end in ("", "/")
    }
    assert paths == {**expected, ("/", "Prefix"): "hoglab-api"}
    said = {name.rpartition("/")[2]: value for name, value in ingress["metadata"]["annotations"].items()}
    for name, value in (
        ("proxy-body-size", "client_max_body_size"),
        ("proxy-read-timeout", "proxy_read_timeout"),
        ("proxy-buffering", "proxy_buffering"),
        ("proxy-next-upstream", "proxy_next_upstream"),
        ("proxy-next-upstream-tries", "proxy_next_upstream_tries"),
    ):
        found = re.search(rf"\b{value} ([^;]+);", nginx)
        assert found is not None
        assert said[name] == found[1].removesuffix("s"), name
    assert ingress["spec"]["tls"] == [{"hosts": ["hoglab.example.com"], "secretName": "tls"}]


def test_only_who_is_named_reaches_pods(everything: list[dict[str, Any]]) -> None:
    policies = of_kind(everything, "NetworkPolicy")
    for role in of_kind(everything, "Deployment"):
        [opened] = policies[role]["spec"]["ingress"]
        expected = [PEER] if role in ("api", "edge") else []
        assert opened["from"] == [*expected, {"podSelector": {}}]
    closed = rendered({**MINIMAL, "networkPolicy": {"enabled": True}})
    assert all(each["spec"]["ingress"] == [] for each in of_kind(closed, "NetworkPolicy").values())


def test_tables_are_made_before_anything_starts(objects: list[dict[str, Any]]) -> None:
    [(name, job)] = of_kind(objects, "Job").items()
    assert name == "migrate"
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    assert job["spec"]["template"]["spec"]["containers"][0]["args"] == ["hoglab", "migrate"]


def test_pods_of_the_monitor_have_the_labels_that_rules_ask_for(everything: list[dict[str, Any]]) -> None:
    [monitor] = of_kind(everything, "PodMonitor").values()
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["authorization"]["credentials"] == {"name": "other", "key": "HOGLAB_METRICS_TOKEN"}
    labels = {each["targetLabel"] for each in endpoint["relabelings"]}
    assert labels == {"job", "instance", "role"}


def test_names_of_a_second_release_are_its_own() -> None:
    ours = {each["metadata"]["name"] for each in rendered(EVERYTHING)}
    theirs = {each["metadata"]["name"] for each in rendered(EVERYTHING, release="trial")}
    assert not ours & theirs
    long = rendered(EVERYTHING, release="r" * 53)
    assert max(len(each["metadata"]["name"]) for each in long) <= 63


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"siteUrl": "hoglab.example.com"}, "siteUrl"),
        ({"roles": {"edge": {"replicas": 0}}}, "replicas"),
        ({"roles": {"edge": {"replica": 3}}}, "replica"),
        ({"roles": {"core": {"replicas": 1}}}, "core"),
        ({"roles": {"edge": {"directorySize": "1Gi"}}}, "directorySize"),
        ({"settings": {"HOGLAB_DATABASE_URL": "postgresql://hoglab:secret@database/hoglab"}}, "DATABASE_URL"),
        ({"settings": {"HOGLAB_PORT": "1"}}, "HOGLAB_PORT"),
        ({"settings": {"LOG_LEVEL": "debug"}}, "LOG_LEVEL"),
        ({"ingress": {"enabled": True}}, "host"),
        # Helm merges values with those of the chart; null takes one of these away.
        ({"roles": {"ingest": {"autoscaling": {"metric": {"value": None}}}}}, "value"),
    ],
    ids=lambda case: json.dumps(case)[:60] if isinstance(case, dict) else case,
)  # fmt: skip
def test_values_that_cannot_be_meant_are_refused(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(helm.HelmValuesError, match=told):
        rendered({**MINIMAL, **wrong})


def test_secret_settings_cannot_stand_in_values() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    refused = set(schema["definitions"]["settings"]["propertyNames"]["not"]["enum"])
    given = {"data", "host", "port", "role", "site_url"}  # by the chart itself
    assert refused == {f"{PREFIX}{name.upper()}" for name in SECRET | given}


def test_the_chart_is_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == hoglab.__version__
    assert OLDEST in chart["kubeVersion"]
