"""Two editors of one experiment: entity tags and ``If-Match``."""

from __future__ import annotations

from typing import Any

import pytest
from tests.experiments.conftest import Lab


@pytest.fixture
def made(lab: Lab) -> Any:
    return lab.ok("POST", "/experiments/", {"name": "Button", "feature_flag_key": "button"}, status=201)


def tag(lab: Lab, path: str) -> str:
    return lab.call("GET", path).headers["etag"]


def test_the_second_of_two_editors_is_refused(lab: Lab, made: Any) -> None:
    path = f"/experiments/{made['id']}/"
    both_read = tag(lab, path)

    first = lab.call("PATCH", path, {"name": "A"}, headers={"If-Match": both_read})
    second = lab.call("PATCH", path, {"name": "B"}, headers={"If-Match": both_read})

    assert (first.status_code, first.headers["etag"]) == (200, tag(lab, path))
    assert (second.status_code, second.json()["code"]) == (412, "precondition_failed")
    assert second.headers["etag"] == first.headers["etag"]
    assert lab.ok("GET", path)["name"] == "A"


def test_actions_are_guarded_too(lab: Lab, made: Any) -> None:
    path = f"/experiments/{made['id']}/"
    old = tag(lab, path)
    lab.ok("PATCH", path, {"description": "new"})
    assert lab.call("POST", f"{path}launch/", headers={"If-Match": old}).status_code == 412
    assert lab.ok("GET", path)["status"] == "draft"
    assert lab.call("POST", f"{path}launch/", headers={"If-Match": tag(lab, path)}).status_code == 200


def test_a_change_of_the_flag_counts(lab: Lab, made: Any) -> None:
    path = f"/experiments/{made['id']}/"
    old = tag(lab, path)
    lab.ok("PATCH", f"/feature_flags/{made['feature_flag']['id']}/", {"name": "changed"})
    assert lab.call("PATCH", path, {"name": "B"}, headers={"If-Match": old}).status_code == 412


@pytest.mark.parametrize("spelled", ["*", '"other", {}', "W/{}"])
def test_ways_to_say_it(lab: Lab, made: Any, spelled: str) -> None:
    path = f"/experiments/{made['id']}/"
    header = {"If-Match": spelled.format(tag(lab, path))}
    assert lab.call("PATCH", path, {"name": "B"}, headers=header).status_code == 200


def test_without_the_header_the_last_editor_wins(lab: Lab, made: Any) -> None:
    path = f"/experiments/{made['id']}/"
    lab.ok("PATCH", path, {"name": "A"})
    lab.ok("PATCH", path, {"name": "B"})
    assert lab.ok("GET", path)["name"] == "B"


def test_a_copy_that_is_still_right_is_not_sent_again(lab: Lab, made: Any) -> None:
    path = f"/experiments/{made['id']}/"
    known = {"If-None-Match": tag(lab, path)}
    answer = lab.call("GET", path, headers=known)
    assert (answer.status_code, answer.content) == (304, b"")
    lab.ok("PATCH", path, {"name": "A"})
    assert lab.call("GET", path, headers=known).status_code == 200
