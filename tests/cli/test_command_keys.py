"""Keys that commands make for themselves."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import wait_for

from hoglab.accounts.bootstrap import bootstrap
from hoglab.accounts.service import AccountService
from hoglab.cli.experiment import source
from hoglab.storage.database import Database


def test_the_key_of_a_command_does_not_live_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that is killed cannot revoke it; one that lives renews it."""
    monkeypatch.setattr(source, "RENEW_S", 0.01)
    database = Database.open(tmp_path / "hoglab.db")
    accounts = AccountService(database)
    bootstrap(database, accounts)
    known = {key["id"] for key in accounts.personal_keys(accounts.owner_id())}

    def key() -> list[dict[str, Any]]:
        return [row for row in accounts.personal_keys(accounts.owner_id()) if row["id"] not in known]

    with source._temporary_key(accounts, 1, None):
        [made] = key()
        assert made["expires_at"] - made["created_at"] <= timedelta(minutes=5)
        wait_for(lambda: key()[0]["expires_at"] > made["expires_at"])
    assert key() == []
    database.dispose()
