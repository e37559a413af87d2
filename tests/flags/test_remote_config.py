"""What a browser asks for when it starts, and payloads of remote configuration (spec: sdk-wire 2.5)."""

from __future__ import annotations

import json
import re

import pytest

from hoglab.flags.evaluation.remote_config import remote_config_script

MINIMAL = {
    "token",
    "supportedCompression",
    "hasFeatureFlags",
    "analytics",
    "autocapture_opt_out",
    "captureDeadClicks",
    "capturePerformance",
    "autocaptureExceptions",
    "errorTracking",
    "elementsChainAsString",
    "sessionRecording",
    "heatmaps",
    "surveys",
    "defaultIdentifiedOnly",
    "siteApps",
}


def test_config(server):
    server.create("off", active=False)
    for path in (f"/array/{server.token}/config", f"/array/{server.token}/config/"):
        answer = server.sdk.get(path, headers={"Origin": "https://shop.example"})
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["cache-control"] == "public, max-age=300"
        assert answer.headers["access-control-allow-origin"] == "https://shop.example"
        config = answer.json()
        assert set(config) >= MINIMAL
        assert (config["token"], config["hasFeatureFlags"]) == (server.token, False)
        assert config["analytics"] == {"endpoint": "/i/v0/e/"}
    server.create("on")
    assert server.sdk.get(f"/array/{server.token}/config").json()["hasFeatureFlags"] is True


def test_config_script(server):
    answer = server.sdk.get(f"/array/{server.token}/config.js")
    assert answer.headers["content-type"].startswith("application/javascript")
    assert answer.headers["cache-control"] == "public, max-age=300"
    found = re.search(r"_POSTHOG_REMOTE_CONFIG\[(.*?)\]=(\{.*\})\}\)\(\);", answer.text)
    assert found is not None
    assert json.loads(found[1]) == server.token
    value = json.loads(found[2])
    assert set(value) == {"config", "siteApps"}
    assert value["config"] == server.sdk.get(f"/array/{server.token}/config").json()


def test_script_cannot_be_broken_out_of():
    script = remote_config_script("</script>\u2028", has_flags=True)
    assert b"</" not in script
    assert "\u2028".encode() not in script


def test_unknown_token(server):
    for name in ("config", "config.js", "array.js"):
        answer = server.sdk.get(f"/array/phc_unknown/{name}", headers={"Origin": "https://shop.example"})
        assert answer.status_code == 404
        assert answer.headers["access-control-allow-origin"] == "https://shop.example"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/surveys/", {"surveys": []}),
        ("/api/early_access_features/", {"earlyAccessFeatures": []}),
        ("/api/web_experiments/", {"experiments": []}),
        ("/api/product_tours/", {"product_tours": []}),
    ],
)
def test_products_that_are_not_here(server, path, body):
    for each in (path, path.rstrip("/")):
        answer = server.sdk.get(f"{each}?token={server.token}", headers={"Origin": "https://shop.example"})
        assert (answer.status_code, answer.json()) == (200, body)
        assert answer.headers["access-control-allow-origin"] == "https://shop.example"
    assert server.sdk.request("OPTIONS", path).status_code == 204
    assert server.sdk.post(path).status_code == 405


def test_sdk_files(server, tmp_path):
    (tmp_path / "array.js").write_text("window.posthog=1;")
    (tmp_path / "recorder.js").write_text("recorder")
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path.parent / "outside.js").write_text("outside")
    for path in ("/static/recorder.js", "/static/1.449.2/recorder.js"):
        answer = server.sdk.get(path, headers={"Origin": "https://shop.example"})
        assert (answer.status_code, answer.text) == (200, "recorder")
        assert "javascript" in answer.headers["content-type"]
        assert answer.headers["access-control-allow-origin"] == "https://shop.example"
    for name in (
        "web-vitals.js",
        "secret.txt",
        "hoglab.db",
        "../outside.js",
        "%2e%2e/outside.js",
        "%2e%2e%2foutside.js",
        "a%00.js",
        *(f"{'a' * length}.js" for length in (252, 253, 300, 1_000, 4_093, 5_000)),
        *("a/" * depth + "a.js" for depth in (130, 2_050, 2_500)),
        *(f"{'%C3%BC' * length}.js" for length in (100, 126, 127, 200)),
    ):
        assert server.sdk.get(f"/static/{name}").status_code == 404
    bundle = server.sdk.get(f"/array/{server.token}/array.js").text
    assert bundle.startswith("window.posthog=1;\n(function(){window._POSTHOG_REMOTE_CONFIG")


@pytest.mark.parametrize("path", ["/static/surveys.js", "/static/1.449.2/surveys.js"])
def test_surveys_have_a_script_without_sdk_files_too(server, tmp_path, path):
    answer = server.sdk.get(path, headers={"Origin": "https://shop.example"})
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (
        200,
        "https://shop.example",
    )
    assert "javascript" in answer.headers["content-type"]
    assert "generateSurveys" in answer.text
    (tmp_path / "surveys.js").write_text("real surveys")
    assert server.sdk.get(path).text == "real surveys"


@pytest.mark.parametrize("path", ["/site_app/1/x/", "/toolbar", "/toolbar_oauth", "/toolbar/x.js"])
def test_absent_paths(server, path):
    answer = server.sdk.get(path, headers={"Origin": "https://shop.example"})
    assert answer.status_code == 404
    assert answer.headers["access-control-allow-origin"] == "https://shop.example"


def test_remote_configuration_payload(server):
    flag = server.create(
        "settings",
        {"groups": [{}], "payloads": {"true": '{"limit": 5}'}},
        is_remote_configuration=True,
        has_encrypted_payloads=True,
    )
    for key in ("settings", flag["id"]):
        for project in ("@current", "1"):
            path = f"/api/projects/{project}/feature_flags/{key}/remote_config?token={server.token}"
            answer = server.client.get(path)
            assert (answer.status_code, answer.json()) == (200, '{"limit": 5}')
    assert server.flags()["flags"]["settings"]["metadata"]["payload"] == '"********* (encrypted)"'
    assert server.sdk.get("/api/projects/@current/feature_flags/settings/remote_config").status_code == 401


NESTED = json.loads("[" * 90 + "]" * 90)


@pytest.mark.parametrize("has_encrypted_payloads", [False, True])
@pytest.mark.parametrize(
    "payload",
    [
        {"a": 1},
        [1, 2],
        [],
        {},
        "text",
        5,
        0,
        0.5,
        True,
        False,
        "",
        '{"a": 1}',
        {"$sealed": "x"},
        {"$sealed": [1]},
        {"$sealed": {"$sealed": "x"}},
        {"deep": NESTED},
        "x" * 500_000,
    ],
)
def test_a_remote_configuration_is_answered_as_text(server, payload, has_encrypted_payloads):
    """PostHog answers the stored text as a JSON string, whatever it holds; posthog-go reads nothing else."""
    text = json.dumps(payload)
    server.create(
        "settings",
        {"groups": [{}], "payloads": {"true": text}},
        is_remote_configuration=True,
        has_encrypted_payloads=has_encrypted_payloads,
    )
    answer = server.client.get("/api/projects/@current/feature_flags/settings/remote_config/").json()
    assert answer == text


def test_remote_configuration_that_is_not_there(server):
    server.create("plain", {"groups": [{}], "payloads": {"true": "1"}})
    server.create("empty", is_remote_configuration=True)
    path = "/api/projects/1/feature_flags/{}/remote_config"
    assert server.client.get(path.format("plain")).status_code == 404
    assert server.client.get(path.format("nothing")).status_code == 404
    assert server.client.get(path.format("9" * 30)).status_code == 404
    assert server.client.get(path.format("empty")).json() is None


def test_remote_configuration_of_another_project_by_token(server):
    other = server.accounts.create_project(server.project.organization_id, "Other")
    server.create("settings", {"groups": [{}], "payloads": {"true": "1"}}, is_remote_configuration=True)
    path = f"/api/projects/{other.id}/feature_flags/settings/remote_config"
    assert server.client.get(path).status_code == 404
    assert server.client.get(f"{path}?token={server.token}").json() == "1"
    assert server.client.get(f"{path}?token=phc_unknown").status_code == 401
