"""Keys, projects, users and the first start, without HTTP."""

from __future__ import annotations

import hashlib
import re
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select, update

from hoglab.accounts.bootstrap import bootstrap, first_start
from hoglab.accounts.errors import AccountError
from hoglab.accounts.keys import hash_key, is_key, is_token, mask_key, new_key, new_token
from hoglab.accounts.principals import RECHECK_S, REMEMBERED
from hoglab.accounts.scopes import scope_fault
from hoglab.accounts.service import (
    MAX_KEYS_PER_USER,
    MAX_LABEL_LENGTH,
    MAX_NAME_LENGTH,
    MAX_SCOPES,
    AccountService,
    check_scopes,
)
from hoglab.accounts.usage import KeyUsage
from hoglab.http.identity import UNKNOWN, Level, Principal
from hoglab.storage.database import Database
from hoglab.storage.database.tables import personal_api_key


def stored(database: Database, key_id: str) -> Any:
    with database.read() as connection:
        return connection.execute(select(personal_api_key).where(personal_api_key.c.id == key_id)).one()


class TestKeyTexts:
    def test_forms(self) -> None:
        key, token = new_key(), new_token()
        assert re.fullmatch(r"phx_[0-9A-Za-z]{43,}", key)
        assert re.fullmatch(r"phc_[0-9A-Za-z]{43,}", token)
        assert is_key(key)
        assert is_token(token)
        assert len({new_key() for _ in range(100)}) == 100

    def test_hash_and_mask(self) -> None:
        key = "phx_" + "a" * 40 + "wxyz"
        assert hash_key(key) == "sha256$" + hashlib.sha256(key.encode()).hexdigest()
        assert mask_key(key) == "phx_...wxyz"

    @given(st.text())
    def test_any_text_can_be_hashed(self, text: str) -> None:
        assert len(hash_key(text)) == 71

    @pytest.mark.parametrize(
        "text", ["", "phx_", "phx_short", "phc_" + "a" * 43, "phx_" + "a" * 43 + "\n", "phx_" + "é" * 43]
    )
    def test_what_is_no_key(self, text: str) -> None:
        assert not is_key(text)

    @pytest.mark.parametrize(
        ("scope", "good"),
        [
            ("*", True),
            ("experiment:read", True),
            ("hog_function:write", True),
            ("experiment", False),
            ("experiment:*", False),
            ("experiment:admin", False),
            ("Experiment:read", False),
            ("experimnt:read", False),
            ("made_up:read", False),
            ("insight:read", True),
            (":read", False),
            ("experiment:read\n", False),
            ("", False),
        ],
    )
    def test_scopes(self, scope: str, good: bool) -> None:
        assert (scope_fault(scope) is None) is good


class TestFirstStart:
    def test_what_is_made(self, database: Database, accounts: AccountService) -> None:
        first = bootstrap(database, accounts)
        assert first is not None
        assert first.project_id == 1
        principal = accounts.authenticate(first.api_key)
        assert principal is not None
        assert principal.scopes == {"*"}
        assert principal.level == Level.OWNER
        assert principal.user.current_project_id == 1
        project = accounts.project_by_token(first.project_token)
        assert project is not None
        assert project == accounts.project(1)
        assert principal.reaches_project(project)

    def test_second_time_does_nothing(self, database: Database, accounts: AccountService, first: Any) -> None:
        assert bootstrap(database, accounts) is None
        assert bootstrap(database, AccountService(database), api_key=new_key()) is None
        assert len(accounts.projects()) == 1
        assert len(accounts.keys()) == 1

    def test_given_values(self, database: Database, accounts: AccountService) -> None:
        key, token = "phx_" + "0123456789abcdef" * 3, "phc_" + "fedcba9876" * 4
        first = bootstrap(database, accounts, api_key=key, project_token=token)
        assert first is not None
        assert (first.api_key, first.project_token) == (key, token)
        assert accounts.authenticate(key) is not None
        assert accounts.project_by_token(token) is not None

    @pytest.mark.parametrize(
        "values", [{"api_key": "secret"}, {"api_key": "phx_short"}, {"project_token": "phx_" + "a" * 40}]
    )
    def test_given_values_of_a_wrong_form(
        self, database: Database, accounts: AccountService, values: dict[str, str]
    ) -> None:
        with pytest.raises(AccountError, match=r"is ph[xc]_ and"):
            bootstrap(database, accounts, **values)
        assert accounts.projects() == []

    def test_key_that_nobody_saw_gets_another_value(
        self, database: Database, accounts: AccountService, tmp_path: Path
    ) -> None:
        unannounced = tmp_path / "first-start"
        lost = first_start(database, accounts, unannounced)
        assert lost is not None
        shown = first_start(database, accounts, unannounced)
        assert shown is not None
        assert (shown.project_id, shown.project_token) == (lost.project_id, lost.project_token)
        assert accounts.authenticate(lost.api_key) is None
        assert accounts.authenticate(shown.api_key) is not None
        assert len(accounts.keys()) == 1
        unannounced.unlink()
        assert first_start(database, accounts, unannounced) is None
        assert accounts.authenticate(shown.api_key) is not None

    def test_key_that_is_in_use_keeps_its_value(
        self, database: Database, accounts: AccountService, tmp_path: Path
    ) -> None:
        first = first_start(database, accounts, tmp_path / "first-start")
        assert first is not None
        principal = accounts.authenticate(first.api_key)
        assert principal is not None
        accounts.used(principal)
        accounts.usage.write()
        assert first_start(database, accounts, tmp_path / "first-start") is None
        assert accounts.authenticate(first.api_key) is not None

    def test_given_key_is_no_secret_to_its_giver(
        self, database: Database, accounts: AccountService, tmp_path: Path
    ) -> None:
        assert first_start(database, accounts, tmp_path / "first-start", api_key=new_key()) is not None
        assert not (tmp_path / "first-start").exists()
        assert first_start(database, accounts, tmp_path / "first-start") is None

    def test_survives_a_restart(self, database: Database, first: Any) -> None:
        again = AccountService(database)
        assert again.authenticate(first.api_key) is not None
        assert again.project_by_token(first.project_token) is not None


class TestAuthentication:
    def test_only_the_hash_is_stored(self, database: Database, accounts: AccountService, owner: int) -> None:
        key = accounts.create_key(owner, "ci", ["experiment:read"])
        row = stored(database, key.id)
        assert row.secure_value == hash_key(key.value)
        assert key.value not in str(tuple(row))

    def test_memory(self, accounts: AccountService, first: Any, clock: Any) -> None:
        assert accounts.recall(first.api_key) is UNKNOWN
        principal = accounts.authenticate(first.api_key)
        assert accounts.recall(first.api_key) is principal
        clock.advance(RECHECK_S + 0.1)
        assert accounts.recall(first.api_key) is UNKNOWN
        assert accounts.authenticate(first.api_key) == principal
        assert accounts.authenticate("phx_unknown") is None

    def test_memory_is_bounded(
        self, accounts: AccountService, owner: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert REMEMBERED == 10_000
        monkeypatch.setattr("hoglab.accounts.principals.REMEMBERED", 2)
        keys = [accounts.create_key(owner, "k", ["*"]).value for _ in range(5)]
        assert all(accounts.authenticate(key) is not None for key in keys)
        assert sum(accounts.recall(key) is not UNKNOWN for key in keys) <= 2

    def test_revocation_by_another_process_is_noticed(
        self, database: Database, accounts: AccountService, owner: int, clock: Any
    ) -> None:
        key = accounts.create_key(owner, "ci", ["*"])
        assert accounts.authenticate(key.value) is not None
        AccountService(database)  # the other process
        with database.write() as tx:  # …which does not tell this one
            tx.execute(personal_api_key.delete().where(personal_api_key.c.id == key.id))
        assert accounts.authenticate(key.value) is not None
        clock.advance(RECHECK_S + 0.1)
        assert accounts.authenticate(key.value) is None
        assert accounts.recall(key.value) is UNKNOWN

    def test_expiry(self, accounts: AccountService, owner: int, clock: Any) -> None:
        expires_at = clock.now + timedelta(seconds=2)
        key = accounts.create_key(owner, "brief", ["*"], expires_at=expires_at).value
        assert accounts.authenticate(key) is not None
        clock.advance(2)
        assert accounts.recall(key) is UNKNOWN
        assert accounts.authenticate(key) is None

    def test_rolling(self, database: Database, accounts: AccountService, owner: int, clock: Any) -> None:
        key = accounts.create_key(owner, "ci", ["experiment:read"])
        before = accounts.authenticate(key.value)
        rolled = accounts.roll_key(key.id)
        assert accounts.authenticate(key.value) is None
        assert accounts.authenticate(rolled.value) == before
        assert stored(database, key.id).last_rolled_at == clock.now
        with pytest.raises(LookupError):
            accounts.roll_key("nothing")

    def test_a_slow_reader_does_not_bring_a_revoked_key_back(
        self, database: Database, accounts: AccountService, owner: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        key = accounts.create_key(owner, "ci", ["*"])
        read, revoked = threading.Event(), threading.Event()
        original = AccountService._read_principal

        def slowly(self: AccountService, secure_value: str) -> Principal | None:
            found = original(self, secure_value)
            read.set()
            assert revoked.wait(10)
            return found

        monkeypatch.setattr(AccountService, "_read_principal", slowly)
        reader = threading.Thread(target=accounts.authenticate, args=(key.value,))
        reader.start()
        assert read.wait(10)
        accounts.revoke_key(key.id)
        revoked.set()
        reader.join()
        assert accounts.recall(key.value) is UNKNOWN

    def test_membership_and_activity_of_the_user(
        self, accounts: AccountService, owner: int, first: Any
    ) -> None:
        organization = accounts.create_organization("Second")
        accounts.join(organization, owner, Level.MEMBER)
        principal = accounts.authenticate(first.api_key)
        assert principal is not None
        assert principal.levels[organization] == Level.MEMBER
        assert principal.is_admin
        assert not principal.at(organization).is_admin
        accounts.set_active(owner, active=False)
        assert accounts.authenticate(first.api_key) is None

    def test_current_organization_without_a_project(self, accounts: AccountService, first: Any) -> None:
        user = accounts.create_user("new@example.com")
        key = accounts.create_key(user.id, "k", ["*"]).value
        principal = accounts.authenticate(key)
        assert principal is not None
        assert (principal.organization_id, principal.level) == (None, None)
        organization = accounts.create_organization("Theirs")
        accounts.join(organization, user.id)
        principal = accounts.authenticate(key)
        assert principal is not None
        assert (principal.organization_id, principal.level) == (organization, Level.MEMBER)


class TestKeys:
    @pytest.mark.parametrize(
        ("label", "scopes", "message", "attr"),
        [
            (" ", ["*"], "A key needs a label.", "label"),
            ("x" * (MAX_LABEL_LENGTH + 1), ["*"], "at most 40 characters", "label"),
            ("x", [], "at least one scope", "scopes"),
            ("x", ["nonsense"], "Invalid scope: nonsense", "scopes"),
            ("x", ["hog_functions:write"], r"Did you mean hog_function:write\?", "scopes"),
            ("x", [f"a{n}:read" for n in range(MAX_SCOPES + 1)], "at most 200 scopes", "scopes"),
        ],
    )
    def test_refusals(
        self, accounts: AccountService, owner: int, label: str, scopes: list[str], message: str, attr: str
    ) -> None:
        with pytest.raises(AccountError, match=message) as caught:
            accounts.create_key(owner, label, scopes)
        assert caught.value.attr == attr

    def test_expiry_in_the_past(self, accounts: AccountService, owner: int, clock: Any) -> None:
        with pytest.raises(AccountError, match="in the past"):
            accounts.create_key(owner, "x", ["*"], expires_at=clock.now)

    def test_number_of_keys(
        self, accounts: AccountService, owner: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert MAX_KEYS_PER_USER == 200
        monkeypatch.setattr("hoglab.accounts.service.MAX_KEYS_PER_USER", 3)
        for _ in range(2):
            accounts.create_key(owner, "x", ["*"])
        with pytest.raises(AccountError, match="at most 3"):
            accounts.create_key(owner, "x", ["*"])

    def test_repeated_scopes_are_kept_once(self) -> None:
        assert check_scopes(["user:read", "query:read", "user:read"]) == ["user:read", "query:read"]

    def test_revoking_what_is_not_there(self, accounts: AccountService) -> None:
        assert not accounts.revoke_key("nothing")
        with pytest.raises(LookupError):
            accounts.update_key("nothing", {"label": "x"})

    def test_nobody_to_make_a_key_for(self, accounts: AccountService) -> None:
        with pytest.raises(AccountError, match="no user yet"):
            accounts.owner_id()


class TestProjects:
    def test_tokens_are_known_at_once_and_ids_grow(self, accounts: AccountService, first: Any) -> None:
        organization = accounts.projects()[0].organization_id
        second = accounts.create_project(organization, " Second ", timezone="Europe/Berlin")
        assert (second.id, second.name, second.timezone) == (2, "Second", "Europe/Berlin")
        assert accounts.project_by_token(second.api_token) == second
        assert [project.id for project in accounts.projects(organization)] == [1, 2]
        assert accounts.projects("another") == []
        assert accounts.project_by_token("phc_unknown") is None
        assert accounts.project(99) is None

    def test_changes_are_seen_at_once(self, accounts: AccountService, first: Any, clock: Any) -> None:
        clock.advance(5)
        filters = [{"key": "email", "type": "person", "operator": "not_icontains", "value": "@example.com"}]
        changed = accounts.update_project(1, {"name": "Shop", "test_account_filters": filters})
        assert changed.updated_at == clock.now
        assert accounts.project(1) == changed
        assert accounts.project_by_token(first.project_token) == changed
        with pytest.raises(LookupError):
            accounts.update_project(99, {"name": "x"})

    @pytest.mark.parametrize(
        "values",
        [
            {"name": " "},
            {"name": "x" * (MAX_NAME_LENGTH + 1)},
            {"timezone": "Mars/Olympus"},
            {"timezone": ""},
        ],
    )
    def test_refusals(self, accounts: AccountService, first: Any, values: dict[str, str]) -> None:
        with pytest.raises(AccountError):
            accounts.update_project(1, values)
        organization = accounts.projects()[0].organization_id
        with pytest.raises(AccountError):
            accounts.create_project(organization, **{"name": "x", **values})

    def test_a_refused_change_leaves_nothing(
        self, database: Database, accounts: AccountService, first: Any
    ) -> None:
        organization = accounts.projects()[0].organization_id

        def change() -> None:
            with database.write() as tx:
                accounts.insert_project(tx, organization, "Never")
                raise RuntimeError("no")

        with pytest.raises(RuntimeError, match="no"):
            change()
        assert len(accounts.projects()) == 1


class TestUsersAndOrganizations:
    def test_an_address_is_one_user(self, accounts: AccountService, owner: int) -> None:
        with pytest.raises(AccountError, match="already a user owner@localhost"):
            accounts.create_user("owner@localhost")

    def test_joining_again_changes_the_level(self, accounts: AccountService, first: Any, owner: int) -> None:
        organization = accounts.create_organization("Second")
        accounts.join(organization, owner)
        accounts.join(organization, owner, Level.ADMIN)
        principal = accounts.authenticate(first.api_key)
        assert principal is not None
        assert principal.levels[organization] == Level.ADMIN
        assert accounts.leave(organization, owner)
        assert not accounts.leave(organization, owner)

    def test_an_organization_has_a_name(self, accounts: AccountService) -> None:
        with pytest.raises(AccountError, match="blank"):
            accounts.create_organization(" ")


class TestUsage:
    def test_written_later_and_once(
        self, database: Database, accounts: AccountService, owner: int, clock: Any
    ) -> None:
        key = accounts.create_key(owner, "ci", ["*"])
        principal = accounts.authenticate(key.value)
        assert principal is not None
        accounts.used(principal)
        clock.advance(1)
        accounts.used(principal)
        assert stored(database, key.id).last_used_at is None
        assert accounts.usage.write() == 1
        assert stored(database, key.id).last_used_at == clock.now
        assert accounts.usage.write() == 0
        assert accounts.authenticate(key.value) is principal

    def test_thread_writes_what_is_left_when_it_ends(
        self, database: Database, accounts: AccountService, owner: int
    ) -> None:
        key = accounts.create_key(owner, "ci", ["*"])
        usage = KeyUsage(database)
        usage.start()
        usage.note(key.id)
        usage.stop()
        assert stored(database, key.id).last_used_at is not None

    def test_thread_writes_periodically(
        self, database: Database, accounts: AccountService, owner: int
    ) -> None:
        key = accounts.create_key(owner, "ci", ["*"])
        written = threading.Event()

        class Watched(KeyUsage):
            def write(self) -> int:
                count = super().write()
                if count:
                    written.set()
                return count

        usage = Watched(database, write_every_s=0.01)
        usage.note(key.id)
        usage.start()
        assert written.wait(10)
        usage.stop()
        assert stored(database, key.id).last_used_at is not None

    def test_a_key_that_is_gone_is_no_trouble(self, accounts: AccountService, owner: int) -> None:
        accounts.usage.note("nothing")
        assert accounts.usage.write() == 1


def test_changing_a_row_behind_the_service(database: Database, accounts: AccountService, owner: int) -> None:
    """Another process raises the version; refreshing the change feed makes this one forget."""
    key = accounts.create_key(owner, "ci", ["experiment:read"])
    assert accounts.authenticate(key.value) is not None
    with database.write() as tx:
        tx.execute(
            update(personal_api_key)
            .where(personal_api_key.c.id == key.id)
            .values(scopes=["experiment:write"])
        )
        tx.changed("keys", 0)
    principal = accounts.authenticate(key.value)
    assert principal is not None
    assert principal.scopes == {"experiment:write"}
