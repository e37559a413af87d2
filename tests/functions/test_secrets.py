"""The life of secrets (spec: hog-functions-api 10)."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet
from tests.contract.rules import rule
from tests.functions.conftest import Api

from hoglab.accounts.activity import entries
from hoglab.functions import store
from hoglab.functions.configuration.stored import read_configuration
from hoglab.functions.secrets.box import KEY_FILE, MASK, SecretBox, Secrets, SecretsError
from hoglab.storage.database import Database
from hoglab.storage.directory import DataDirectory

SCHEMA: list[dict[str, Any]] = [
    {"key": "token", "type": "string", "secret": True},
    {"key": "url", "type": "string"},
]
KEPT = {"secret": True}


def stored(database: Database, box: SecretBox, function: dict[str, Any]) -> Any:
    """The secret value that is stored, None for none."""
    with database.read() as connection:
        row = store.get(connection, 1, function["id"])
    assert row is not None
    assert "s3cr3t" not in repr({name: value for name, value in row.items() if name != "encrypted_inputs"})
    return box.unseal(row["encrypted_inputs"]).inputs.get("token", {}).get("value")


@pytest.fixture
def made(api: Api) -> dict[str, Any]:
    return api.create(inputs_schema=SCHEMA, inputs={"token": {"value": "s3cr3t"}, "url": {"value": "u"}})


@rule("F10.2")
@pytest.mark.parametrize(
    ("item", "value"),
    [
        ({}, "s3cr3t"),
        ({"secret": True}, "s3cr3t"),
        ({"secret": True, "value": MASK}, "s3cr3t"),
        ({"secret": True, "value": None}, "s3cr3t"),
        ({"value": "new"}, "new"),
        ({"value": "new", "secret": True}, "new"),
        ({"value": "", "secret": False}, None),
        ({"value": ""}, None),
        ({"value": None}, None),
    ],
)
def test_what_a_request_item_does(
    api: Api, database: Database, box: SecretBox, made: dict[str, Any], item: dict[str, Any], value: Any
) -> None:
    assert made["inputs"]["token"] == KEPT
    changed = api.change(made, inputs={"token": item, "url": {"value": "u"}})
    assert stored(database, box, made) == value
    assert changed["inputs"].get("token") == (KEPT if value else None)
    assert ("token" in changed["inputs"]) is (value is not None)


def test_a_secret_that_is_not_sent_is_kept(
    api: Api, database: Database, box: SecretBox, made: dict[str, Any]
) -> None:
    for body in (
        {"inputs": {}},
        {"name": "x"},
        {"inputs_schema": SCHEMA},
        {"deleted": True},
        {"deleted": False},
    ):
        api.change(made, **body)
        assert stored(database, box, made) == "s3cr3t"


@rule("F10.2")
def test_the_mask_is_never_stored(api: Api, made: dict[str, Any]) -> None:
    error = api.change_refused(made, inputs={"token": {"value": MASK}})
    assert (error["attr"], error["detail"]) == (
        "inputs__token",
        "This secret input was not updated correctly. Enter the value again.",
    )
    for item in ({"secret": True}, {"secret": True, "value": MASK}):
        error = api.refused(inputs_schema=SCHEMA, inputs={"token": item})
        assert error["detail"] == "No value is saved for this secret input. Enter the value again."


def test_a_required_secret_cannot_be_cleared(
    api: Api, database: Database, box: SecretBox, made: dict[str, Any]
) -> None:
    required = [{**SCHEMA[0], "required": True}, SCHEMA[1]]
    api.change(made, inputs_schema=required)
    assert api.change_refused(made, inputs={"token": {"value": ""}})["detail"] == "This field is required."
    assert stored(database, box, made) == "s3cr3t"
    assert api.refused(inputs_schema=required)["attr"] == "inputs__token"


@rule("F10.3")
def test_removing_the_key_removes_the_secret(
    api: Api, database: Database, box: SecretBox, made: dict[str, Any]
) -> None:
    api.change(made, inputs_schema=SCHEMA[1:])
    assert stored(database, box, made) is None
    assert "token" not in api.change(made, inputs_schema=SCHEMA)["inputs"]


@rule("F10.4")
def test_becoming_secret_moves_the_value(
    api: Api, database: Database, box: SecretBox, made: dict[str, Any]
) -> None:
    both = [SCHEMA[0], {**SCHEMA[1], "secret": True}]
    changed = api.change(made, inputs_schema=both)
    assert changed["inputs"] == {"token": KEPT, "url": KEPT}
    with database.read() as connection:
        row = store.get(connection, 1, made["id"])
    assert row is not None
    assert row["inputs"] == {}
    assert box.unseal(row["encrypted_inputs"]).inputs["url"]["value"] == "u"


@rule("F10.4")
def test_ceasing_to_be_secret_reveals_nothing(
    api: Api, database: Database, box: SecretBox, made: dict[str, Any]
) -> None:
    changed = api.change(made, inputs_schema=[{**SCHEMA[0], "secret": False}, SCHEMA[1]])
    assert changed["inputs"]["token"] is None
    assert stored(database, box, made) is None


@rule("F8.6")
def test_secrets_of_mappings(api: Api, database: Database, box: SecretBox) -> None:
    def mapping(name: str | None, item: dict[str, Any] | None) -> dict[str, Any]:
        body: dict[str, Any] = {"inputs_schema": SCHEMA}
        if name is not None:
            body["name"] = name
        if item is not None:
            body["inputs"] = {"token": item}
        return body

    made = api.create(mappings=[mapping("a", {"value": "s3cr3t-a"}), mapping(None, {"value": "s3cr3t-1"})])
    assert [one["inputs"] for one in made["mappings"]] == [{"token": KEPT}] * 2
    with database.read() as connection:
        row = store.get(connection, 1, made["id"])
    assert row is not None
    assert "s3cr3t" not in repr(row["mappings"])
    assert {
        label: items["token"]["value"]
        for label, items in box.unseal(row["encrypted_inputs"]).mappings.items()
    } == {
        "a": "s3cr3t-a",
        "1": "s3cr3t-1",
    }
    changed = api.change(
        made, mappings=[mapping("b", {"value": "x"}), mapping(None, None), mapping("a", {"secret": True})]
    )
    assert [one.get("inputs") for one in changed["mappings"]] == [{"token": KEPT}] * 3
    error = api.change_refused(made, mappings=[mapping("new", {"secret": True})])
    assert error["attr"] == "mappings__0__inputs__token"
    assert api.change(made, name="kept")["mappings"] == changed["mappings"]


@rule("F10.7")
def test_lists_and_history_hold_no_secret(api: Api, made: dict[str, Any]) -> None:
    for path in ("/hog_functions/", "/hog_functions/?full=true", f"/hog_functions/{made['id']}/"):
        assert "s3cr3t" not in api.get(path).text


@rule("F8.6")
@pytest.mark.parametrize("names", [("1", None), ("m", "m"), (None, None, "0"), ("m", "m#2", "m")])
def test_mappings_of_the_same_name_have_secrets_of_their_own(
    api: Api, database: Database, box: SecretBox, names: tuple[str | None, ...]
) -> None:
    def mapping(name: str | None, **item: Any) -> dict[str, Any]:
        named = {} if name is None else {"name": name}
        return {**named, "inputs_schema": SCHEMA[:1], "inputs": {"token": item}}

    made = api.create(mappings=[mapping(name, value=f"s{at}") for at, name in enumerate(names)])
    kept = [f"s{at}" for at in range(len(names))]
    assert mapping_secrets(database, box, made) == kept
    api.change(made, mappings=[mapping(name, secret=True) for name in names])
    assert mapping_secrets(database, box, made) == kept


def mapping_secrets(database: Database, box: SecretBox, function: dict[str, Any]) -> list[Any]:
    """The secret of each mapping, as the runtime reads it."""
    with database.read() as connection:
        row = store.get(connection, 1, function["id"])
    assert row is not None
    mappings = read_configuration(row, box).mappings or ()
    return [one.inputs.secret["token"]["value"] for one in mappings]


@rule("F10.4", "F10.8")
def test_what_becomes_secret_leaves_the_history(api: Api, database: Database) -> None:
    plain = [{**SCHEMA[0], "secret": False}]
    value = "was-plain-once"
    mapping = {"name": "m", "inputs_schema": plain, "inputs": {"token": {"value": f"{value}-m"}}}
    made = api.create(inputs_schema=plain, mappings=[mapping])
    api.change(made, inputs={"token": {"value": value}})
    api.change(made, hog="return 2")
    path = f"/hog_functions/{made['id']}"
    assert value in api.get(f"{path}/revisions/2/").text
    hidden = {**mapping, "inputs_schema": SCHEMA[:1], "inputs": {}}
    changed = api.change(made, inputs_schema=SCHEMA[:1], mappings=[hidden])
    assert changed["inputs"] == {"token": KEPT}
    assert changed["mappings"][0]["inputs"] == {"token": KEPT}
    with database.read() as connection:
        log, count = entries(connection, 1, limit=50, offset=0, scopes=["HogFunction"])
    assert count == 4
    assert value not in str(log)
    for version in (1, 2, 3, 4):
        for tail in ("", "diff/"):
            answer = api.get(f"{path}/revisions/{version}/{tail}")
            assert answer.status_code == 200
            assert value not in answer.text
    back = api.post(f"{path}/revisions/2/rollback/")
    assert back.status_code == 200
    assert value not in back.text


@rule("F10.8")
@pytest.mark.parametrize("value", ["{hunter2(1)}", "{person.hunter2", "{{ hunter2 }}", "{hunter2-x}"])
@pytest.mark.parametrize("kind", ["destination", "transformation"])
def test_errors_do_not_quote_secrets(api: Api, value: str, kind: str) -> None:
    body = {"type": kind, "hog": "return 1", "inputs_schema": SCHEMA, "inputs": {"token": {"value": value}}}
    error = api.post("/hog_functions/", body)
    assert "hunter2" not in error.text
    if error.status_code == 400:
        assert error.json()["attr"] == "inputs__token"
        assert error.json()["detail"].startswith("Invalid template: ")
    found = api.post("/hog_functions/new/diagnostics/", body)
    assert found.status_code == 200
    assert "hunter2" not in found.text


# --- the box


@rule("F10.5")
def test_what_is_sealed_is_unreadable_and_comes_back() -> None:
    box = SecretBox([Fernet.generate_key().decode()])
    secrets = Secrets({"a": {"value": "s3cr3t", "order": 0}}, {"m": {"b": {"value": 1}}})
    sealed = box.seal(secrets)
    assert sealed is not None
    assert b"s3cr3t" not in sealed
    assert box.unseal(sealed) == secrets
    assert box.seal(Secrets()) is None
    assert box.seal(Secrets({}, {"m": {}})) is None
    assert box.unseal(None) == Secrets()
    with pytest.raises(SecretsError, match="cannot be read"):
        box.unseal(sealed[:-2] + b"xx")


@rule("F10.5")
def test_keys_rotate() -> None:
    old, new = Fernet.generate_key().decode(), Fernet.generate_key().decode()
    sealed = SecretBox([old]).seal(Secrets({"a": {"value": 1}}))
    both = SecretBox([new, old])
    assert both.unseal(sealed).inputs == {"a": {"value": 1}}
    again = both.seal(both.unseal(sealed))
    assert SecretBox([new]).unseal(again).inputs == {"a": {"value": 1}}
    with pytest.raises(SecretsError):
        SecretBox([new]).unseal(sealed)
    with pytest.raises(SecretsError, match="not usable"):
        SecretBox(["nonsense"])


def test_the_key_file(tmp_path: Path) -> None:
    with DataDirectory.open(tmp_path / "data", create=True) as directory:
        sealed = SecretBox.open(directory).seal(Secrets({"a": {"value": 1}}))
        path = directory.path / KEY_FILE
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert SecretBox.open(directory).unseal(sealed).inputs == {"a": {"value": 1}}
        given = Fernet.generate_key().decode()
        with pytest.raises(SecretsError):
            SecretBox.open(directory, [given]).unseal(sealed)
        path.write_text(f"{given}\n{path.read_text()}\n# an old one above\n")
        assert SecretBox.open(directory).unseal(sealed).inputs == {"a": {"value": 1}}
        path.write_text("\n")
        with pytest.raises(SecretsError, match="holds no key"):
            SecretBox.open(directory)
