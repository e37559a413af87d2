"""Feature flags as the public Terraform provider sends and reads them (rule F24.9)."""

from __future__ import annotations

from typing import Any

from tests.contract.conftest import Api
from tests.contract.rules import rule
from tests.functions.test_terraform import as_text, stripped, written

FILTERS = {
    "groups": [
        {
            "properties": [
                {"key": "email", "type": "person", "operator": "icontains", "value": "@example.com"}
            ],
            "rollout_percentage": 40,
            "variant": None,
        }
    ],
    "multivariate": {
        "variants": [
            {"key": "control", "name": "", "rollout_percentage": 50},
            {"key": "test", "name": "Test", "rollout_percentage": 50},
        ]
    },
    "payloads": {"test": '{"a": 1}'},
}


def check(flag: dict[str, Any], config: dict[str, Any]) -> None:
    """Decoded strictly, and the same as what was configured."""
    assert type(flag["id"]) is int
    assert all(isinstance(flag[name], str) for name in ("key", "name"))
    assert all(type(flag[name]) is bool for name in ("active", "deleted", "ensure_experience_continuity"))
    assert isinstance(flag["filters"], dict)
    share = flag.get("rollout_percentage", flag["filters"]["groups"][0].get("rollout_percentage"))
    assert share is None or type(share) is int
    assert all(isinstance(tag, str) for tag in flag["tags"])
    for name, value in config.items():
        assert as_text(written(stripped(flag[name]), value)) == as_text(value), name


@rule("F24.9")
def test_a_flag_s_life(api: Api) -> None:
    config: dict[str, Any] = {"key": "checkout", "name": "Checkout", "active": True, "filters": FILTERS}
    made = api.ok("POST", "/feature_flags/", config, status=201)
    check(made, config)
    path = f"/feature_flags/{made['id']}/"
    for change in (
        {"name": "Renamed"},
        {"active": False},
        {"active": True, "ensure_experience_continuity": True},
        {"filters": {"groups": [{"properties": [], "rollout_percentage": 100}]}},
    ):
        config |= change
        check(api.ok("PATCH", path, config), config)
        check(api.ok("GET", path), config)
    assert api.ok("PATCH", path, {"key": api.ok("GET", path)["key"], "deleted": True})["deleted"] is True
    assert api.call("GET", path).status_code == 404
    assert api.ok("POST", "/feature_flags/", {**config, "name": "Again"}, status=201)["id"] != made["id"]
