"""Replacing the key that encrypts secrets (spec: hog-functions-api 10)."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.functions.conftest import Api
from typer.testing import CliRunner

from hoglab.accounts.store import project_by_id
from hoglab.cli import app
from hoglab.flags.payloads import resealed, reveal
from hoglab.flags.service import FlagService
from hoglab.functions import store
from hoglab.functions.secrets.box import KEY_FILE, SecretBox, SecretsError
from hoglab.functions.secrets.rotation import rotate
from hoglab.functions.service import FunctionService
from hoglab.storage.database import Database
from hoglab.storage.directory import DataDirectory

SCHEMA = [{"key": "token", "type": "string", "secret": True}]


def test_everything_stored_is_encrypted_with_the_new_key(
    tmp_path: Path, database: Database, make_api: object
) -> None:
    with DataDirectory.open(tmp_path / "data", create=True) as directory:
        old = SecretBox.open(directory)
        api = make_api(FunctionService(database, old))  # type: ignore[operator]
        assert isinstance(api, Api)
        made = [
            api.create(inputs_schema=SCHEMA, inputs={"token": {"value": f"s{n}"}})["id"] for n in range(3)
        ]
        api.patch(f"/hog_functions/{made[0]}/", {"deleted": True})
        api.create()
        SecretBox.add_key(directory)
        keys = (tmp_path / "data" / KEY_FILE).read_text().split()
        assert len(keys) == 2
        assert rotate(database, SecretBox.open(directory)) == 3
        assert stat.S_IMODE((tmp_path / "data" / KEY_FILE).stat().st_mode) == 0o600
    newest = SecretBox(keys[:1])
    for n, function_id in enumerate(made):
        with database.read() as connection:
            row = store.get(connection, 1, function_id)
        assert row is not None
        assert newest.unseal(row["encrypted_inputs"]).inputs["token"]["value"] == f"s{n}"
        with pytest.raises(SecretsError):
            old.unseal(row["encrypted_inputs"])


def test_payloads_of_flags() -> None:
    first, second = SecretBox.new_key(), SecretBox.new_key()
    sealed = orjson.dumps({"$sealed": SecretBox([first]).encrypt_text("p")}).decode()
    filters = {"groups": [], "payloads": {"a": sealed, "b": '{"plain": 1}'}}
    changed = resealed(filters, SecretBox([second, first]).renewed_text)
    assert changed is not None
    assert changed["payloads"]["b"] == filters["payloads"]["b"]
    text = orjson.loads(changed["payloads"]["a"])["$sealed"]
    assert SecretBox([second]).decrypt_text(text) == "p"
    assert resealed({"groups": []}, SecretBox([first]).renewed_text) is None


@pytest.mark.parametrize("payload", ["junk", [1], None, {"$sealed": "junk"}])
def test_a_payload_that_only_looks_encrypted_stops_no_rotation(database: Database, payload: object) -> None:
    """Anybody who may write flags can write such a payload."""
    first, second = SecretBox.new_key(), SecretBox.new_key()
    looks = orjson.dumps({"$sealed": payload}).decode()
    flags = FlagService(database, cipher=SecretBox([first]))
    bodies: dict[str, dict[str, Any]] = {
        "plain": {},
        "encrypted": {"is_remote_configuration": True, "has_encrypted_payloads": True},
    }
    with database.read() as connection:
        project = project_by_id(connection, 1)
    assert project is not None
    for key, more in bodies.items():
        flags.create(
            project, None, {"key": key, "filters": {"groups": [{}], "payloads": {"true": looks}}, **more}
        )
    assert rotate(database, SecretBox([second, first])) == 1
    with database.read() as connection:
        plain, encrypted = (flags.get_by_key(connection, 1, key) for key in bodies)
    assert plain is not None
    assert encrypted is not None
    assert plain.filters["payloads"]["true"] == looks
    assert reveal(encrypted.filters["payloads"]["true"], SecretBox([second])) == looks


def test_the_command(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    with DataDirectory.open(data, create=True) as directory:
        Database.open(directory.metadata_path).dispose()
    run = CliRunner().invoke(app, ["secrets", "rotate", "--data", data])
    assert (run.exit_code, run.stdout) == (0, "encrypted again: 0\n")
    keys = (tmp_path / "data" / KEY_FILE).read_text().split()
    CliRunner().invoke(app, ["secrets", "rotate", "--data", data])
    assert (tmp_path / "data" / KEY_FILE).read_text().split()[1:] == keys
    with DataDirectory.open(data):
        locked = CliRunner().invoke(app, ["secrets", "rotate", "--data", data])
    assert locked.exit_code != 0
