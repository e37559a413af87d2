"""Random lives of a function's secrets beside a model of them: what is kept, what is shown, and that nothing tells one.

``HOGLAB_MODEL_EXAMPLES`` runs more of them.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import orjson
import pytest
from cryptography.fernet import Fernet
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.contract.rules import rule as proves
from tests.delivery.conftest import House, prepared
from tests.delivery.test_routes import EVENT, Api

from hoglab.accounts.activity import entries
from hoglab.accounts.bootstrap import FirstStart
from hoglab.functions import store
from hoglab.functions.secrets.box import MASK, SecretBox
from hoglab.functions.secrets.rotation import rotate

__all__ = ["prepared"]  # a fixture

EXAMPLES = int(os.environ.get("HOGLAB_MODEL_EXAMPLES", "8"))
KEYS = ("a", "b")
SHOWN = {"secret": True}
ABSENT = "absent"
HOG = "print(inputs.a, inputs.b, inputs.m)"

Schema = dict[str, bool]
"""Whether each key of a schema is secret."""
Items = dict[str, Any]
"""Items of a request by key."""


class RefusedError(Exception):
    """The server must answer 400 and change nothing."""


@dataclass(frozen=True)
class Model:
    """The inputs of a function, or of one mapping: their schema, and the values that are set."""

    schema: Schema = field(default_factory=dict)
    values: dict[str, str | None] = field(default_factory=dict)
    """What is not there was never given; None is a null that was sent for a plain input."""

    def after(self, schema: Schema | None, items: Items | None) -> Model:
        """What a change makes of it. ``None``: not sent. Raises `RefusedError`."""
        known = self.schema if schema is None else schema
        values = {key: self._value(key, secret=known[key], items=items) for key in known}
        return Model(known, {key: value for key, value in values.items() if value != ABSENT})

    def _value(self, key: str, *, secret: bool, items: Items | None) -> str | None:
        before = self.values.get(key, ABSENT)
        if secret and before in (None, "", MASK):  # which a plain value may have been
            before = ABSENT
        if not secret:
            if items is None:
                return ABSENT if self.schema.get(key) else before
            item = items.get(key) or {}
            return item.get("value", ABSENT)
        item = {} if items is None else items.get(key) or {}
        value, sent, marked = item.get("value"), "value" in item, item.get("secret") is True
        if not sent and not marked:
            return before
        if marked and value in (None, MASK):
            if before == ABSENT:
                raise RefusedError
            return before
        if value == MASK:
            raise RefusedError
        return value or ABSENT

    @property
    def secrets(self) -> dict[str, Any]:
        return {key: value for key, value in self.values.items() if self.schema[key]}

    def shown(self, *, every_key: bool) -> dict[str, Any]:
        """What an answer says, values alone."""
        found: dict[str, Any] = {}
        for key, secret in self.schema.items():
            if key in self.values:
                found[key] = SHOWN if secret else self.values[key]
            elif every_key and not secret:
                found[key] = ABSENT
        return found


numbers = count()
schemas = st.dictionaries(st.sampled_from(KEYS), st.booleans(), max_size=2)
kinds = st.sampled_from(
    [
        "missing",
        "nothing",
        "null",
        "mark",
        "mark and mask",
        "new",
        "new",
        "new and mark",
        "empty",
        "none",
        "mask",
    ]
)


def item_of(kind: str) -> Any:
    """An item of a request; every new value is one that was never there before."""
    value = f"quartz-{next(numbers)}-zebra"
    return {
        "missing": ABSENT,
        "nothing": {},
        "null": None,
        "mark": {"secret": True},
        "mark and mask": {"secret": True, "value": MASK},
        "new": {"value": value},
        "new and mark": {"value": value, "secret": True},
        "empty": {"value": ""},
        "none": {"value": None},
        "mask": {"value": MASK},
    }[kind]


items = st.fixed_dictionaries(dict.fromkeys(KEYS, kinds)).map(
    lambda chosen: {key: item for key, kind in chosen.items() if (item := item_of(kind)) != ABSENT}
)


def entries_of(schema: Schema) -> list[dict[str, Any]]:
    return [{"key": key, "type": "string", "secret": secret} for key, secret in schema.items()]


def machine(folder: Path, first: FirstStart) -> type[RuleBasedStateMachine]:
    """The machine, on copies of a prepared data directory."""

    class SecretsMachine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.house = House(Path(shutil.copytree(folder, folder.parent / f"life-{next(numbers)}")))
            self.keys = [self.house.key]
            self.function: str | None = None
            self.own, self.mapping = Model(), None
            self.deleted = self.enabled = self.has_draft = False
            self.hidden: set[str] = set()
            self._open()

        def _open(self) -> None:
            self.house.open()
            assert first.api_key is not None
            self.api = Api(self.house, first.api_key)

        def teardown(self) -> None:
            self.api.close()
            self.house.close()
            shutil.rmtree(self.house.folder)

        # --- calls

        def ask(self, method: str, path: str, body: Any = None) -> Any:
            """An answer, whatever it is, in which there is no secret."""
            answer = self.api.call(method, path, body)
            assert answer.status_code < 500, answer.text
            self.search(answer.text, f"{method} {path}")
            return answer

        def search(self, text: str, place: str) -> None:
            told = [value for value in self.hidden if value in text]
            assert not told, f"{place} tells {told} in {text}"

        def send(self, method: str, path: str, body: dict[str, Any], own: Any, mapping: Any) -> Any:
            """Send a change that the model answers too: ``own`` and ``mapping`` say what becomes of them."""
            try:
                after, inner = own(), mapping()
            except RefusedError:
                after = inner = None
            for one in (after, inner):
                self.hidden |= set(one.secrets.values()) if isinstance(one, Model) else set()
            answer = self.ask(method, path, body)
            if after is None:
                assert answer.status_code == 400, (body, answer.text)
                return None
            assert answer.status_code in (200, 201), (body, answer.text)
            self.own, self.mapping = after, inner
            return answer.json()

        def mapping_after(self, sent: Any) -> Any:
            """What a change makes of the mapping; ``sent``: ABSENT, null, or a schema and items."""
            if sent == ABSENT:
                return lambda: self.mapping
            if sent is None:
                return lambda: None
            return lambda: (self.mapping or Model()).after(sent[0], sent[1] or {})

        # --- steps

        @precondition(lambda self: self.function is None)
        @rule(schema=schemas, items=items, inner=st.one_of(st.none(), st.tuples(schemas, items)))
        def create(self, schema: Schema, items: Items, inner: Any) -> None:
            body = {"hog": HOG, "name": "n", "inputs_schema": entries_of(schema), "inputs": items}
            if inner is not None:
                body["mappings"] = [mapping_body(inner)]
            made = self.send(
                "POST", "/", body, lambda: Model().after(schema, items), self.mapping_after(inner)
            )
            if made is not None:
                self.function = made["id"]

        @property
        def path(self) -> str:
            return f"/{self.function}/"

        def change(self, *, schema: Any = None, items: Any = None, inner: Any = ABSENT, **more: Any) -> None:
            body = dict(more)
            if schema is not None:
                body["inputs_schema"] = entries_of(schema)
            if items is not None:
                body["inputs"] = items
            if inner != ABSENT:
                body["mappings"] = None if inner is None else [mapping_body(inner)]
            before = self.own
            self.send(
                "PATCH", self.path, body, lambda: before.after(schema, items), self.mapping_after(inner)
            )

        @precondition(lambda self: self.function and not self.deleted)
        @rule(items=items)
        def change_inputs(self, items: Items) -> None:
            self.change(items=items)

        @precondition(lambda self: self.function and not self.deleted)
        @rule(schema=schemas, items=st.none() | items)
        def change_schema(self, schema: Schema, items: Items | None) -> None:
            self.change(schema=schema, items=items)

        @precondition(lambda self: self.function and not self.deleted and self.own.values)
        @rule(data=st.data())
        def turn_secret_or_back(self, data: st.DataObject) -> None:
            key = data.draw(st.sampled_from(sorted(self.own.values)))
            self.change(schema={**self.own.schema, key: not self.own.schema[key]})

        @precondition(lambda self: self.function and not self.deleted)
        @rule(inner=st.none() | st.tuples(schemas, st.none() | items))
        def change_mapping(self, inner: Any) -> None:
            self.change(inner=inner)

        @precondition(
            lambda self: self.function and not self.deleted and self.mapping and self.mapping.values
        )
        @rule(data=st.data())
        def turn_mapping_secret_or_back(self, data: st.DataObject) -> None:
            key = data.draw(st.sampled_from(sorted(self.mapping.values)))
            schema = {**self.mapping.schema, key: not self.mapping.schema[key]}
            stay = {
                name: {"value": value}
                for name, value in self.mapping.values.items()
                if name not in self.mapping.secrets
            }
            self.change(inner=(schema, {name: item for name, item in stay.items() if name != key}))

        @precondition(lambda self: self.function and not self.deleted)
        @rule(more=st.sampled_from([{"name": "x"}, {"hog": HOG + " return 2"}]))
        def change_the_rest(self, more: dict[str, Any]) -> None:
            self.change(**more)

        @precondition(lambda self: self.function and not self.deleted)
        @rule(enabled=st.booleans())
        def enable_or_disable(self, enabled: bool) -> None:
            """Nothing is enabled over a draft that nobody has looked at."""
            refused = enabled and not self.enabled and self.has_draft
            answer = self.ask("PATCH", self.path, {"enabled": enabled})
            assert answer.status_code == (400 if refused else 200), answer.text
            self.enabled = self.enabled if refused else enabled

        @precondition(lambda self: self.function and not self.deleted)
        @rule(
            body=st.sampled_from(
                [{"type": "transformation"}, {"filters": []}, {"hog": "let"}, {"inputs": []}]
            )
        )
        def refused_change(self, body: dict[str, Any]) -> None:
            assert self.ask("PATCH", self.path, body).status_code == 400

        @precondition(lambda self: self.function and not self.deleted)
        @rule(template=st.sampled_from(["template-webhook", "nothing"]))
        def template_change(self, template: str) -> None:
            """Changes nothing: a template is for a function's birth."""
            assert self.ask("PATCH", self.path, {"template_id": template}).status_code == 200

        @precondition(lambda self: self.function)
        @rule()
        def delete_or_restore(self) -> None:
            self.deleted = not self.deleted
            assert self.ask("PATCH", self.path, {"deleted": self.deleted}).status_code == 200

        @precondition(lambda self: self.function and not self.deleted)
        @rule()
        def duplicate(self) -> None:
            """A copy has no secrets of its own: what the answer shows of them cannot be saved elsewhere."""
            read = self.ask("GET", self.path).json()
            has_secrets = bool(self.own.secrets or (self.mapping and self.mapping.secrets))
            copied = self.ask("POST", "/", read)
            assert copied.status_code == (400 if has_secrets else 201), copied.text
            if copied.status_code == 201:
                self.ask("PATCH", f"/{copied.json()['id']}/", {"deleted": True})

        def kept_version(self, data: st.DataObject) -> int | None:
            versions = self.ask("GET", f"{self.path}revisions/").json()["results"]
            return data.draw(st.sampled_from([one["version"] for one in versions])) if versions else None

        def send_content(self, tail: str, body: dict[str, Any], content: dict[str, Any]) -> Any:
            """Ask for what makes a former content, which knows no secrets, the configuration."""
            schema = {entry["key"]: entry["secret"] for entry in content["inputs_schema"]}
            inner: Any = None
            if content["mappings"] is not None:
                one = content["mappings"][0]
                inner = ({e["key"]: e["secret"] for e in one["inputs_schema"]}, one.get("inputs"))
            before = self.own
            return self.send(
                "POST",
                f"{self.path}{tail}",
                body,
                lambda: before.after(schema, content["inputs"]),
                self.mapping_after(inner),
            )

        @precondition(lambda self: self.function and not self.deleted)
        @rule(data=st.data())
        def roll_back(self, data: st.DataObject) -> None:
            version = self.kept_version(data)
            if version is not None:
                content = self.ask("GET", f"{self.path}revisions/{version}/").json()["content"]
                self.send_content(f"revisions/{version}/rollback/", {}, content)

        @precondition(lambda self: self.function and not self.deleted)
        @rule(data=st.data(), overwrite=st.booleans())
        def stage(self, data: st.DataObject, overwrite: bool) -> None:
            """A former version becomes the draft, for which the live secrets are kept."""
            version = self.kept_version(data)
            if version is None:
                return
            answer = self.ask("POST", f"{self.path}revisions/{version}/restore/", {"overwrite": overwrite})
            assert answer.status_code == (409 if self.has_draft and not overwrite else 200), answer.text
            self.has_draft = True

        @precondition(lambda self: self.function and not self.deleted and self.has_draft)
        @rule()
        def publish(self) -> None:
            draft = self.ask("GET", self.path).json()["draft"]
            preview = self.ask("POST", f"{self.path}publish/", {}).json()
            confirmed = {"confirm": True, "confirm_token": preview["confirm_token"]}
            done = self.send_content("publish/", confirmed, draft)
            assert done["published"]
            self.has_draft = False

        @precondition(lambda self: self.function and not self.deleted)
        @rule()
        def discard(self) -> None:
            assert self.ask("POST", f"{self.path}discard_draft/").status_code == 200
            self.has_draft = False

        @precondition(lambda self: self.function and not self.deleted and self.has_draft)
        @rule()
        def try_the_draft(self) -> None:
            body = {"use_draft": True, "globals": {"event": EVENT}}
            assert self.ask("POST", f"{self.path}invocations/", body).status_code == 200

        @rule()
        def rotate(self) -> None:
            """A new key in front, everything encrypted again, the old key forgotten."""
            self.keys = [Fernet.generate_key().decode(), self.keys[0]]
            rotate(self.house.database, SecretBox(self.keys))
            self.keys = self.keys[:1]
            self.api.close()
            self.house.close()
            self.house.key = self.keys[0]
            self._open()

        @precondition(lambda self: self.function and not self.deleted)
        @rule(mask=st.booleans(), code=st.sampled_from([HOG, "throw Error(f'{inputs}')", "return inputs"]))
        def try_it(self, mask: bool, code: str) -> None:
            """A test run uses the stored secrets, and writes marks in their place."""
            configuration: dict[str, Any] = {"hog": code, "mappings": None}
            if mask and self.own.secrets:
                stay = {
                    key: {"value": self.own.values[key]}
                    for key in set(self.own.values) - set(self.own.secrets)
                }
                configuration["inputs"] = stay | dict.fromkeys(self.own.secrets, SHOWN)
            body = {"configuration": configuration, "globals": {"event": EVENT}}
            answer = self.ask("POST", f"{self.path}invocations/", body)
            assert answer.status_code == 200, answer.text
            if code == HOG and self.own.secrets:
                assert "***REDACTED***" in answer.json()["logs"][0]["message"]
            self.ask("POST", f"{self.path}explain/", body)
            self.ask("POST", f"{self.path}diagnostics/", {"inputs_schema": entries_of(self.own.schema)})

        # --- what always holds

        @invariant()
        def everything_is_as_the_model_says(self) -> None:
            if self.function is None:
                return
            if not self.deleted:
                self._answers()
            self._stored()

        def _answers(self) -> None:
            read = self.ask("GET", self.path).json()
            assert values_of(read["inputs"]) == self.own.shown(every_key=True)
            assert (read["draft"] is not None, read["enabled"]) == (self.has_draft, self.enabled)
            mappings = read["mappings"]
            assert (mappings is None) is (self.mapping is None)
            if self.mapping is not None:
                assert values_of(mappings[0].get("inputs") or {}) == self.mapping.shown(every_key=False)
            for path in ("/", "/?full=true", f"{self.path}revisions/"):
                self.ask("GET", path)
            for one in self.ask("GET", f"{self.path}revisions/").json()["results"]:
                self.ask("GET", f"{self.path}revisions/{one['version']}/")
                self.ask("GET", f"{self.path}revisions/{one['version']}/diff/")

        def _stored(self) -> None:
            with self.house.database.read() as connection:
                row = store.get(connection, 1, self.function or "")
                log, _ = entries(connection, 1, limit=1000, offset=0, scopes=["HogFunction"])
            assert row is not None
            self.search(
                repr({name: value for name, value in row.items() if name != "encrypted_inputs"}), "the row"
            )
            self.search(orjson.dumps(log).decode(), "the history")
            kept = SecretBox(self.keys).unseal(row["encrypted_inputs"])
            assert values_of(kept.inputs) == self.own.secrets
            inner = self.mapping.secrets if self.mapping is not None else {}
            assert values_of(kept.mappings.get("m", {})) == inner
            assert set(kept.mappings) <= {"m"}

    return SecretsMachine


def mapping_body(inner: tuple[Schema, Items | None]) -> dict[str, Any]:
    schema, items = inner
    body: dict[str, Any] = {"name": "m", "inputs_schema": entries_of(schema)}
    return body if items is None else {**body, "inputs": items}


def values_of(inputs: dict[str, Any]) -> dict[str, Any]:
    """Values by key; a secret as its mark."""
    shown = {key: ABSENT if item is None else item for key, item in inputs.items()}
    return {key: item if item in (ABSENT, SHOWN) else item["value"] for key, item in shown.items()}


@pytest.mark.slow
@proves("F10.7", "F10.1", "F10.2", "F10.3", "F10.4", "F8.6")
def test_lives_of_secrets(prepared: tuple[Path, FirstStart], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(prepared[0], tmp_path / "data"))
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        machine(folder, prepared[1]),
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=20,
            deadline=None,
            derandomize="HOGLAB_MODEL_EXAMPLES" not in os.environ,
            database=None,
            phases=[Phase.generate],  # what fails is told as it was found: making it smaller takes minutes
            suppress_health_check=list(HealthCheck),
        ),
    )
