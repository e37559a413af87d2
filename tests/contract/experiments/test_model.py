"""Random lives of an experiment and its flag, beside a model of both that fits on two pages.

``HOGLAB_MODEL_EXAMPLES`` runs more of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.contract.conftest import Api, Laboratory
from tests.contract.experiments.test_changes import MEAN

EXAMPLES = int(os.environ.get("HOGLAB_MODEL_EXAMPLES", "12"))
DATES = (None, "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z")
UUIDS = tuple(str(UUID(int=number)) for number in range(1, 5))
NOW = "now"
"""The model's name for a moment that the server chose."""

OPENINGS = [
    [],
    ["launch"],
    ["launch", "freeze"],
    ["launch", "freeze", "unfreeze", "freeze"],
    ["launch", "freeze", "reset", "launch"],
    ["launch", "freeze", "back to draft", "launch"],
]
"""How lives begin: most of what can go wrong lies behind a few steps that chance seldom takes in a row."""

Shares = list[tuple[str, int]]
names = st.sampled_from(["A", "B", "C"])
dates = st.sampled_from(DATES)
conclusions = st.sampled_from([None, "won", "lost"])
percents = st.sampled_from([0, 30, 100])
shares = st.sampled_from(
    [
        [("control", 50), ("test", 50)],
        [("control", 20), ("test", 80)],
        [("test", 80), ("control", 20)],
        [("control", 30), ("test", 30), ("b", 40)],
        [("a", 50), ("b", 50)],
    ]
)


@dataclass
class Model:
    """An experiment and its flag. Methods say whether a call succeeds; those that do have happened."""

    name: str = "A"
    start: str | None = None
    end: str | None = None
    archived: bool = False
    deleted: bool = False
    conclusion: str | None = None
    holdout: int | None = None
    metrics: list[str] = field(default_factory=list)
    order: list[str] | None = None
    shares: Shares = field(default_factory=lambda: [("control", 50), ("test", 50)])
    rollouts: list[int] = field(default_factory=lambda: [100])
    active: bool = False
    frozen: bool = False
    flag_archived: bool = False
    archived_flag: bool = False
    """Whether the experiment archived its flag."""

    @property
    def status(self) -> str:
        if self.start is None:
            return "draft"
        if self.end is not None:
            return "stopped"
        if not self.active:
            return "paused"
        return "exposure_frozen" if self.frozen else "running"

    @property
    def is_running(self) -> bool:
        return self.start is not None and self.end is None

    def activate(self) -> bool:
        if self.flag_archived and not self.active:
            return False
        self.active = True
        return True

    # -- PATCH -----------------------------------------------------------------------------------------

    def set_dates(self, sent: dict[str, str | None]) -> bool:
        start, end = sent.get("start_date"), sent.get("end_date")
        if start is not None and end is not None and start >= end:
            return False
        if self.start is None and start is not None and not self.activate():
            return False
        if self.start is not None and start is None and "start_date" in sent:
            self.frozen = False
        self.start, self.end = sent.get("start_date", self.start), sent.get("end_date", self.end)
        return True

    def configure(self, wanted: Shares | None, rollout: int | None, *, forced: bool) -> bool:
        same = wanted in (None, self.shares) and rollout in (None, self.rollouts[0])
        if same:
            return True
        if self.start is not None:
            if not forced:
                return False
            if wanted is not None and sorted(dict(wanted)) != sorted(dict(self.shares)):
                return False
        self.shares = wanted if wanted is not None else self.shares
        self.rollouts[0] = rollout if rollout is not None else self.rollouts[0]
        return True

    def set_holdout(self, holdout: int | None) -> bool:
        if holdout != self.holdout and self.start is not None:
            return False
        self.holdout = holdout
        return True

    def set_metrics(self, uuids: list[str]) -> bool:
        gone = set(self.metrics) - set(uuids)
        kept = [uuid for uuid in self.order or [] if uuid not in gone]
        if self.order is not None or uuids:
            self.order = [*kept, *(uuid for uuid in uuids if uuid not in kept)]
        self.metrics = uuids
        return True

    # -- actions ---------------------------------------------------------------------------------------

    def launch(self) -> bool:
        if self.start is not None or not self.activate():
            return False
        self.start = NOW
        return True

    def pause(self) -> bool:
        if not self.is_running or not self.active:
            return False
        self.active = False
        return True

    def resume(self) -> bool:
        return self.is_running and not self.active and self.activate()

    def finish(self, conclusion: str | None) -> bool:
        if not self.is_running:
            return False
        self.end, self.conclusion = NOW, conclusion
        return True

    def reset(self) -> bool:
        if self.start is None:
            return False
        self.start = self.end = self.conclusion = None
        self.archived = self.frozen = False
        return True

    def archive(self, *, disable: bool) -> bool:
        if self.archived or self.start is None or self.end is None:
            return False
        self.archived = True
        if self.flag_archived:
            return True
        self.archived_flag = self.flag_archived = disable or not self.active
        self.active = self.active and not disable
        return True

    def unarchive(self) -> bool:
        if not self.archived:
            return False
        self.flag_archived = self.flag_archived and not self.archived_flag
        self.archived = self.archived_flag = False
        return True

    def ship(self, key: str, *, everyone: bool, conclusion: str | None) -> bool:
        if self.start is None or key not in dict(self.shares):
            return False
        self.shares = [(each, 100 if each == key else 0) for each, _ in self.shares]
        self.rollouts = [*([100] if everyone else []), *self.rollouts]
        self.frozen = False
        self.end = NOW if self.is_running else self.end
        self.conclusion = conclusion or self.conclusion
        return True

    def freeze(self) -> bool:
        if self.status != "running" or self.holdout is not None:
            return False
        self.frozen = True
        return True

    def unfreeze(self) -> bool:
        if not self.is_running or not self.frozen:
            return False
        self.frozen = False
        return True

    # -- the flag itself -------------------------------------------------------------------------------

    def switch_flag(self, *, active: bool) -> bool:
        if active:
            return self.activate()
        self.active = False
        return True

    def set_flag_variants(self, wanted: Shares) -> bool:
        removed = dict(self.shares).keys() - dict(wanted).keys()
        if removed and self.is_running and not self.deleted:
            return False
        self.shares = wanted
        return True


class Life(RuleBasedStateMachine):
    """Calls of the API, each made on the model too."""

    api: Api
    holdouts: Sequence[int]
    opening: Sequence[str]
    numbers: Iterator[int]

    def __init__(self) -> None:
        super().__init__()
        body = {"parameters": {"feature_flag_variants": _variants(Model().shares)}}
        made = self.api.experiment(f"flag-{next(self.numbers)}", name="A", **body)
        self.path, self.flag_path = (
            f"/experiments/{made['id']}/",
            f"/feature_flags/{made['feature_flag']['id']}/",
        )
        self.model = Model()

    def _call(self, method: str, path: str, body: dict[str, Any], step: Callable[[], bool]) -> None:
        answer = self.api.call(method, path, body)
        if path != self.flag_path and self.model.deleted:
            assert answer.status_code == 404
            return
        expected = 200 if step() else 400
        assert answer.status_code == expected, (method, path, body, self.model, answer.text)

    def _patch(self, step: Callable[[], bool], **body: Any) -> None:
        self._call("PATCH", self.path, body, step)

    def _act(self, action: str, step: Callable[[], bool], **body: Any) -> None:
        self._call("POST", f"{self.path}{action}/", body, step)

    def _set(self, **values: Any) -> Callable[[], bool]:
        def step() -> bool:
            for name, value in values.items():
                setattr(self.model, name, value)
            return True

        return step

    @invariant()
    def agrees(self) -> None:
        flag, model = self.api.ok("GET", self.flag_path), self.model
        assert (flag["active"], flag["archived"]) == (model.active, model.flag_archived)
        assert _shares(flag["filters"]) == model.shares
        groups = flag["filters"]["groups"]
        assert [group["rollout_percentage"] for group in groups] == model.rollouts
        assert [group.get("exposure_frozen", False) for group in groups] == [model.frozen] * len(groups)
        assert [bool(group["properties"]) for group in groups] == [model.frozen] * len(groups)
        assert ((flag["filters"]["holdout"] or {}).get("id")) == model.holdout
        if model.deleted:
            assert self.api.call("GET", self.path).status_code == 404
            return
        found = self.api.ok("GET", self.path)
        assert [found["name"], found["archived"], found["conclusion"], found["status"]] == [
            model.name,
            model.archived,
            model.conclusion,
            model.status,
        ]
        for name, wanted in (("start_date", model.start), ("end_date", model.end)):
            assert found[name] is not None if wanted == NOW else found[name] == wanted
        assert found["holdout_id"] == model.holdout
        assert [metric["uuid"] for metric in found["metrics"]] == model.metrics
        assert found["primary_metrics_ordered_uuids"] == model.order
        assert found["feature_flag"]["filters"] == flag["filters"]
        assert (
            _shares({"multivariate": {"variants": found["parameters"]["feature_flag_variants"]}})
            == model.shares
        )

    @initialize()
    def begin(self) -> None:
        for step in self.opening:
            self._step(step)
            self.agrees()

    def _step(self, name: str) -> None:
        if name == "back to draft":
            self._patch(lambda: self.model.set_dates({"start_date": None}), start_date=None)
        else:
            self._act(f"{name}_exposure" if "freeze" in name else name, getattr(self.model, name))

    @precondition(lambda self: self.model.start is not None)
    @rule(step=st.sampled_from(["reset", "back to draft"]))
    def restart(self, step: str) -> None:
        self._step(step)

    @precondition(lambda self: self.model.status in ("running", "exposure_frozen"))
    @rule()
    def turn_exposure(self) -> None:
        self._step("unfreeze" if self.model.frozen else "freeze")

    @rule(name=names, conclusion=conclusions, archived=st.booleans())
    def plain(self, name: str, conclusion: str | None, archived: bool) -> None:
        values = {"name": name, "conclusion": conclusion, "archived": archived}
        self._patch(self._set(**values), **values)

    @rule(sent=st.dictionaries(st.sampled_from(["start_date", "end_date"]), dates, min_size=1))
    def dates(self, sent: dict[str, str | None]) -> None:
        self._patch(lambda: self.model.set_dates(sent), **sent)

    @rule(wanted=st.none() | shares, rollout=st.none() | percents, forced=st.booleans(), inside=st.booleans())
    def configure(self, wanted: Shares | None, rollout: int | None, forced: bool, inside: bool) -> None:
        body: dict[str, Any] = {}
        if inside:
            parameters = {
                "feature_flag_variants": wanted and _variants(wanted),
                "rollout_percentage": rollout,
            }
            body["parameters"] = {key: value for key, value in parameters.items() if value is not None}
        else:
            filters: dict[str, Any] = {}
            if wanted is not None:
                filters["multivariate"] = {"variants": _variants(wanted)}
            if rollout is not None:
                filters["groups"] = [{"properties": [], "rollout_percentage": rollout}]
            body["feature_flag"] = {"filters": filters}
        step = self.model.configure
        self._patch(lambda: step(wanted, rollout, forced=forced), update_feature_flag_params=forced, **body)

    @rule(number=st.sampled_from([None, 0, 1]))
    def holdout(self, number: int | None) -> None:
        holdout = None if number is None else self.holdouts[number]
        self._patch(lambda: self.model.set_holdout(holdout), holdout_id=holdout)

    @rule(uuids=st.lists(st.sampled_from(UUIDS), unique=True, max_size=3))
    def metrics(self, uuids: list[str]) -> None:
        found = [MEAN | {"uuid": uuid} for uuid in uuids]
        self._patch(lambda: self.model.set_metrics(uuids), metrics=found)

    @rule()
    def echo(self) -> None:
        if not self.model.deleted:
            self._patch(lambda: True, **self.api.ok("GET", self.path))

    @rule()
    def delete(self) -> None:
        self._patch(self._set(deleted=True), deleted=True)

    @rule(name=names)
    def restore(self, name: str) -> None:
        self.api.ok("PATCH", self.path, {"deleted": False, "name": name})
        self._set(deleted=False, name=name)()

    @rule(action=st.sampled_from(["launch", "pause", "resume", "reset", "unarchive", "freeze", "unfreeze"]))
    def act(self, action: str) -> None:
        self._step(action)

    @rule(conclusion=conclusions)
    def end(self, conclusion: str | None) -> None:
        self._act("end", lambda: self.model.finish(conclusion), conclusion=conclusion)

    @rule(disable=st.booleans())
    def archive(self, disable: bool) -> None:
        self._act("archive", lambda: self.model.archive(disable=disable), disable_feature_flag=disable)

    @rule(key=st.sampled_from(["control", "test", "b"]), everyone=st.booleans(), conclusion=conclusions)
    def ship(self, key: str, everyone: bool, conclusion: str | None) -> None:
        step = self.model.ship
        self._act(
            "ship_variant",
            lambda: step(key, everyone=everyone, conclusion=conclusion),
            variant_key=key,
            release_to_everyone=everyone,
            conclusion=conclusion,
        )

    @rule(active=st.booleans())
    def switch_flag(self, active: bool) -> None:
        body = {"active": active}
        self._call("PATCH", self.flag_path, body, lambda: self.model.switch_flag(active=active))

    @rule(wanted=shares)
    def edit_flag(self, wanted: Shares) -> None:
        body = {"filters": {"multivariate": {"variants": _variants(wanted)}}}
        self._call("PATCH", self.flag_path, body, lambda: self.model.set_flag_variants(wanted))

    @rule(rollout=percents)
    def edit_conditions(self, rollout: int) -> None:
        body = {"filters": {"groups": [{"properties": [], "rollout_percentage": rollout}]}}
        self._call("PATCH", self.flag_path, body, self._set(rollouts=[rollout], frozen=False))


def _variants(found: Shares) -> list[dict[str, Any]]:
    return [{"key": key, "rollout_percentage": share} for key, share in found]


def _shares(filters: dict[str, Any]) -> Shares:
    return [(each["key"], each["rollout_percentage"]) for each in filters["multivariate"]["variants"]]


@pytest.mark.parametrize("opening", OPENINGS, ids=", ".join)
def test_lives(laboratory: Laboratory, opening: Sequence[str]) -> None:
    api = laboratory.api()
    body = {"filters": [{"properties": [], "rollout_percentage": 20}]}
    found = [api.ok("POST", "/experiment_holdouts/", body | {"name": n}, status=201)["id"] for n in "AB"]

    class Here(Life):
        pass

    Here.api, Here.holdouts, Here.opening, Here.numbers = api, found, opening, count()
    run_state_machine_as_test(
        Here,
        settings=settings(
            max_examples=max(1, EXAMPLES // len(OPENINGS)),
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
