"""Sessions of browsers: who may log in, what a session may do, and when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from sqlalchemy import func, select
from structlog.testing import capture_logs
from tests.accounts.conftest import Clock
from tests.apps import app_of
from tests.http.asgi import Answer, ask

from hoglab.accounts.bootstrap import FirstStart
from hoglab.accounts.keys import hash_key
from hoglab.accounts.routes import routers
from hoglab.accounts.service import AccountService
from hoglab.accounts.sessions import service
from hoglab.accounts.sessions.routes import routers as session_routers
from hoglab.accounts.sessions.service import SessionService
from hoglab.http.app import HoglabApp
from hoglab.http.identity import Level
from hoglab.http.management.config import HttpConfig
from hoglab.storage.database import Database
from hoglab.storage.database.tables import login_link, user_session

LOGIN = "/api/session/"
HOST = b"hoglab.test"
COOKIE = "hoglab-80"
NOBODY = {"id": None, "user": None, "scopes": [], "expires_at": None}
DAY_S = 86_400


@dataclass
class Browser:
    """What a page of the server asks, with the cookie that the browser was given."""

    app: HoglabApp
    runner: asyncio.Runner
    cookie: str | None = None
    address: str = "192.0.2.1"
    headers: dict[str, str] = field(default_factory=dict)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        sent = {"sec-fetch-site": "same-origin", "user-agent": "Tester/1", **self.headers}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookie is not None:
            sent["cookie"] = self.cookie
        if body is not None:
            sent.setdefault("content-type", "application/json")
        encoded = [(name.encode(), value.encode()) for name, value in sent.items() if value]
        parts = [] if body is None else [body if isinstance(body, bytes) else orjson.dumps(body)]
        return self.runner.run(ask(self.app, method, path, encoded, body=parts, client=(self.address, 5000)))

    def log_in(self, **proof: Any) -> dict[str, Any]:
        answer = self.ask("POST", LOGIN, proof)
        assert answer.status == 201, answer.body
        self.cookie = answer.headers["set-cookie"].partition(";")[0]
        shown: dict[str, Any] = orjson.loads(answer.body)
        return shown

    def who(self) -> Answer:
        return self.ask("GET", LOGIN)

    def is_known(self) -> bool:
        """Whether its cookie is that of a session; a page that asks is told either way."""
        answer = self.who()
        assert answer.status == 200, answer.body
        assert "set-cookie" not in answer.headers
        return orjson.loads(answer.body) != NOBODY


@pytest.fixture
def sessions(database: Database, accounts: AccountService, clock: Clock) -> SessionService:
    return SessionService(database, accounts, clock.seconds)


@pytest.fixture
def open_browser(
    database: Database, accounts: AccountService, sessions: SessionService, first: FirstStart
) -> Iterator[Callable[..., Browser]]:
    apps = []
    with asyncio.Runner() as runner:

        def make(public_url: str | None = None, **facts: Any) -> Browser:
            app = app_of(
                accounts,
                *routers(accounts, database, lambda *_: None),
                *session_routers(sessions, accounts),
                config=HttpConfig(public_url=public_url),
                sessions=sessions,
                now=accounts.now,
            )
            apps.append(app)
            return Browser(app, runner, **facts)

        yield make
        for app in apps:
            app.close()


@pytest.fixture
def browser(open_browser: Callable[..., Browser]) -> Browser:
    return open_browser()


@pytest.fixture
def link(sessions: SessionService, owner: int) -> str:
    return sessions.new_link(owner)


def assert_refused(answer: Answer) -> None:
    assert answer.status == 401
    assert orjson.loads(answer.body)["code"] == "authentication_failed"
    assert "set-cookie" not in answer.headers


def assert_out(browser: Browser) -> None:
    """The session of a browser has ended: nothing is let in, and its pages are told so."""
    assert not browser.is_known()
    assert_refused(browser.ask("GET", "/api/users/@me/"))


class TestLogin:
    def test_by_a_link(self, browser: Browser, link: str) -> None:
        answer = browser.ask("POST", LOGIN, {"token": link})
        shown = orjson.loads(answer.body)
        assert answer.status == 201
        assert set(shown) == {"id", "user", "scopes", "expires_at"}
        assert (shown["user"]["email"], shown["scopes"]) == ("owner@localhost", ["*"])
        assert shown["expires_at"] == "2026-01-16T03:04:05Z"
        assert answer.headers["cache-control"] == "no-store"
        browser.cookie = answer.headers["set-cookie"].partition(";")[0]
        me = browser.ask("GET", "/api/users/@me/")
        assert orjson.loads(me.body) == shown["user"]
        assert orjson.loads(browser.who().body) == shown
        assert "set-cookie" not in browser.who().headers

    def test_by_a_key_with_its_scopes_and_limits(
        self, browser: Browser, accounts: AccountService, owner: int
    ) -> None:
        key = accounts.create_key(owner, "limited", ["project:read"], scoped_projects=[1])
        assert browser.log_in(personal_api_key=key.value)["scopes"] == ["project:read"]
        assert browser.ask("GET", "/api/projects/1/").status == 200
        assert browser.ask("PATCH", "/api/projects/1/", {"name": "x"}).status == 403
        assert browser.ask("GET", "/api/users/@me/").status == 403
        accounts.update_key(key.id, {"scopes": ["user:read"]})
        assert browser.ask("GET", "/api/projects/1/").status == 403
        assert browser.ask("GET", "/api/users/@me/").status == 200

    @pytest.mark.files
    def test_only_hashes_are_kept(self, tmp_path: Path, browser: Browser, link: str) -> None:
        browser.log_in(token=link)
        assert browser.cookie is not None
        kept = b"".join(path.read_bytes() for path in tmp_path.glob("hoglab.db*"))
        assert hash_key(link).encode() in kept
        assert link.encode() not in kept
        assert browser.cookie.partition("=")[2].encode() not in kept

    @pytest.mark.parametrize(
        ("body", "attr"),
        [
            ({}, "token"),
            ({"token": None}, "token"),
            ({"token": "a", "personal_api_key": "b"}, "personal_api_key"),
            ({"email": "a@example.com", "password": "0123456789"}, "email"),
            ({"password": "0123456789"}, "password"),
            ({"token": "a" * 201}, "token"),
            ([], None),
        ],
        ids=str,
    )
    def test_bodies_that_are_none(self, browser: Browser, body: Any, attr: str | None) -> None:
        answer = browser.ask("POST", LOGIN, body)
        assert answer.status == 400
        assert orjson.loads(answer.body)["attr"] == attr

    @pytest.mark.parametrize("media_type", ["application/x-www-form-urlencoded", "text/plain", ""])
    def test_only_json_logs_in(self, browser: Browser, link: str, media_type: str) -> None:
        sent = orjson.dumps({"token": link})
        assert browser.ask("POST", LOGIN, sent, content_type=media_type).status == 415
        assert browser.log_in(token=link)

    def test_a_page_of_another_origin_logs_nobody_in(self, browser: Browser, link: str) -> None:
        for headers in (
            {"sec_fetch_site": "cross-site"},
            {"sec_fetch_site": "", "origin": "https://evil.test"},
        ):
            assert browser.ask("POST", LOGIN, {"token": link}, **headers).status == 403
        assert browser.ask("POST", LOGIN, {"token": link}, sec_fetch_site="").status == 201  # no browser

    def test_refusals_are_all_the_same(
        self, browser: Browser, accounts: AccountService, sessions: SessionService, owner: int, clock: Clock
    ) -> None:
        used, late = sessions.new_link(owner), sessions.new_link(owner)
        browser.log_in(token=used)
        expired = accounts.create_key(owner, "e", ["*"], expires_at=clock.now + timedelta(seconds=1))
        revoked = accounts.create_key(owner, "r", ["*"])
        accounts.revoke_key(revoked.id)
        clock.advance(15 * 60)
        secret = accounts.rotate_secret_key(1, owner)
        proofs: list[dict[str, str]] = [
            *({"token": each} for each in (used, late, "A" * 43, "short", revoked.value)),
            *({"personal_api_key": each} for each in (expired.value, revoked.value, secret.value, "phx_" + "a" * 40)),
        ]  # fmt: skip
        answers = [browser.ask("POST", LOGIN, proof) for proof in proofs]
        for answer in answers:
            assert_refused(answer)
        assert len({answer.body for answer in answers}) == 1

    def test_a_link_is_good_for_fifteen_minutes(self, browser: Browser, link: str, clock: Clock) -> None:
        clock.advance(15 * 60 - 1)
        assert browser.log_in(token=link)

    def test_a_used_link_opens_nothing_for_two_at_once(self, sessions: SessionService, link: str) -> None:
        who = service.Browser("192.0.2.1", "")
        sessions.log_in(link, who)
        with pytest.raises(service.LoginRefusedError):
            sessions.log_in(link, who)

    def test_a_planted_cookie_is_not_taken_over(self, browser: Browser, link: str) -> None:
        browser.cookie = planted = f"{COOKIE}={'A' * 43}"
        browser.log_in(token=link)
        assert browser.cookie != planted
        browser.cookie = planted
        assert_out(browser)

    def test_logging_in_again_ends_the_former_session(
        self, browser: Browser, sessions: SessionService, owner: int
    ) -> None:
        browser.log_in(token=sessions.new_link(owner))
        former = browser.cookie
        browser.log_in(token=sessions.new_link(owner))
        assert browser.is_known()
        browser.cookie = former
        assert_out(browser)

    def test_the_log_names_the_session(self, browser: Browser, link: str) -> None:
        with capture_logs() as logs:
            shown = browser.log_in(token=link)
            browser.ask("GET", "/api/users/@me/")
        assert [(line["session_id"], line.get("key_id")) for line in logs] == [(shown["id"], None)] * 2


class TestThrottling:
    def wrong(self, browser: Browser, **headers: str) -> int:
        return browser.ask("POST", LOGIN, {"token": "A" * 43}, **headers).status

    def test_ten_a_minute_from_an_address(self, browser: Browser, link: str, clock: Clock) -> None:
        assert [self.wrong(browser) for _ in range(11)] == [401] * 10 + [429]
        refused = browser.ask("POST", LOGIN, {"token": "A" * 43})
        assert (refused.status, refused.headers["retry-after"]) == (429, "60")
        browser.address = "192.0.2.2"
        assert self.wrong(browser) == 401
        browser.address = "192.0.2.1"
        clock.advance(60)
        assert browser.log_in(token=link)

    def test_who_is_right_is_never_refused_for_who_is_wrong(
        self, browser: Browser, first: FirstStart, link: str
    ) -> None:
        """Behind a proxy many people may share an address."""
        assert [self.wrong(browser) for _ in range(20)][-1] == 429
        assert browser.log_in(personal_api_key=first.api_key)
        assert browser.log_in(token=link)

    def test_a_key_opens_thirty_sessions_a_minute(
        self, browser: Browser, accounts: AccountService, owner: int, first: FirstStart, clock: Clock
    ) -> None:
        key = accounts.create_key(owner, "k", ["feature_flag:read"]).value
        answers = [browser.ask("POST", LOGIN, {"personal_api_key": key}).status for _ in range(31)]
        assert answers == [201] * 30 + [429]
        assert browser.log_in(personal_api_key=first.api_key)
        clock.advance(60)
        assert browser.log_in(personal_api_key=key)

    def test_who_is_right_is_not_counted(self, browser: Browser, first: FirstStart) -> None:
        for _ in range(12):
            browser.log_in(personal_api_key=first.api_key)
        assert [self.wrong(browser) for _ in range(11)] == [401] * 10 + [429]

    def test_bodies_that_are_none_are_not_counted(self, browser: Browser) -> None:
        assert [browser.ask("POST", LOGIN, {}).status for _ in range(11)] == [400] * 11
        assert self.wrong(browser) == 401

    def test_ten_a_minute_for_an_account_from_anywhere(
        self, browser: Browser, sessions: SessionService, accounts: AccountService, owner: int, link: str
    ) -> None:
        used = sessions.new_link(owner)
        browser.log_in(token=used)
        for number in range(11):
            browser.address = f"192.0.2.{number + 10}"
            answer = browser.ask("POST", LOGIN, {"token": used})
            assert answer.status == (401 if number < 10 else 429)
        browser.address = "192.0.2.100"
        assert browser.ask("POST", LOGIN, {"token": used}).status == 429
        assert browser.log_in(token=link)
        other = accounts.create_user("other@example.com")
        assert browser.log_in(token=sessions.new_link(other.id))

    def test_the_word_of_a_proxy_counts_only_where_the_settings_name_the_site(
        self, open_browser: Callable[..., Browser]
    ) -> None:
        direct = open_browser(address="127.0.0.1")
        tries = [self.wrong(direct, x_forwarded_for=f"192.0.2.{each}") for each in range(11)]
        assert tries == [401] * 10 + [429]
        behind = open_browser("https://hoglab.test", address="10.0.0.1")
        tries = [self.wrong(behind, x_forwarded_for=f"192.0.2.{each}") for each in range(20, 32)]
        assert tries == [401] * 12
        tries = [self.wrong(behind, x_forwarded_for=f"192.0.2.{each}, 192.0.2.1") for each in range(11)]
        assert tries == [401] * 10 + [429]

    def test_neither_address_nor_scheme_comes_from_headers_of_strangers(
        self, browser: Browser, link: str
    ) -> None:
        headers = {
            "x_forwarded_for": "198.51.100.9",
            "x_forwarded_proto": "https",
            "x_real_ip": "198.51.100.9",
        }
        answer = browser.ask("POST", LOGIN, {"token": link}, **headers)
        assert answer.headers["set-cookie"].startswith(f"{COOKIE}=")
        browser.cookie = answer.headers["set-cookie"].partition(";")[0]
        (mine,) = orjson.loads(browser.ask("GET", "/api/sessions/").body)
        assert mine["ip"] == "192.0.2.1"


class TestCookie:
    def test_over_http_it_has_the_port_in_its_name(self, browser: Browser, link: str) -> None:
        answer = browser.ask("POST", LOGIN, {"token": link})
        name, *attributes = answer.headers["set-cookie"].split("; ")
        assert name.partition("=")[0] == COOKIE
        assert len(name.partition("=")[2]) == 43
        assert attributes == ["Max-Age=7776000", "HttpOnly", "SameSite=Strict", "Path=/"]

    def test_over_https_it_is_of_this_host_alone(
        self, open_browser: Callable[..., Browser], link: str
    ) -> None:
        browser = open_browser("https://hoglab.test")
        answer = browser.ask("POST", LOGIN, {"token": link})
        name, *attributes = answer.headers["set-cookie"].split("; ")
        assert name.partition("=")[0] == "__Host-hoglab"
        assert attributes == ["Max-Age=7776000", "HttpOnly", "SameSite=Strict", "Path=/", "Secure"]
        browser.cookie = name
        assert browser.is_known()
        browser.cookie = name.replace("__Host-hoglab", "hoglab-443")
        assert not browser.is_known()

    def test_of_two_under_the_name_none_counts(self, browser: Browser, link: str) -> None:
        browser.log_in(token=link)
        browser.cookie = f"{browser.cookie}; other=1"
        assert browser.is_known()
        browser.cookie = f"{COOKIE}={'A' * 43}; {browser.cookie}"
        assert not browser.is_known()

    @pytest.mark.parametrize(
        "value", ["", "x", "A" * 42, "A" * 44, '"' + "A" * 43 + '"', "Ä" * 43, "A" * 5000]
    )
    def test_cookies_that_are_none(self, browser: Browser, value: str) -> None:
        browser.cookie = f"{COOKIE}={value}"
        assert not browser.is_known()

    def test_a_key_is_asked_for_first(
        self, browser: Browser, link: str, accounts: AccountService, owner: int
    ) -> None:
        browser.log_in(token=link)
        weak = accounts.create_key(owner, "weak", ["project:read"]).value
        assert browser.ask("GET", "/api/users/@me/", authorization=f"Bearer {weak}").status == 403
        assert browser.ask("GET", "/api/users/@me/", authorization="Bearer phx_wrong").status == 401
        assert browser.ask("GET", "/api/users/@me/", authorization="Basic eDp5").status == 200
        body = {"name": "n", "personal_api_key": weak}
        assert browser.ask("PATCH", "/api/projects/1/", body).status == 403
        assert browser.ask("GET", LOGIN, authorization=f"Bearer {weak}").status == 401

    @pytest.mark.parametrize(
        "media_type",
        ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain", ""],
    )
    def test_bodies_are_json_alone(self, browser: Browser, link: str, media_type: str) -> None:
        browser.log_in(token=link)
        answer = browser.ask("PATCH", "/api/projects/1/", b"name=x", content_type=media_type)
        assert answer.status == 415
        assert browser.ask("PATCH", "/api/projects/1/", {"name": "x"}).status == 200

    def test_requests_without_a_body_need_no_type(self, browser: Browser, link: str) -> None:
        browser.log_in(token=link)
        key = orjson.loads(browser.ask("GET", "/api/personal_api_keys/").body)[0]["id"]
        assert browser.ask("POST", f"/api/personal_api_keys/{key}/roll/").status == 200

    def test_answers_are_not_kept(self, browser: Browser, link: str) -> None:
        browser.log_in(token=link)
        for path in ("/api/projects/1/", "/api/users/@me/", "/api/projects/"):
            assert browser.ask("GET", path).headers["cache-control"] == "no-store"


class TestEnd:
    def test_logging_out(self, browser: Browser, link: str, database: Database) -> None:
        browser.log_in(token=link)
        answer = browser.ask("DELETE", LOGIN)
        assert answer.status == 204
        assert answer.headers["set-cookie"] == f"{COOKIE}=; Max-Age=0; HttpOnly; SameSite=Strict; Path=/"
        assert_out(browser)
        assert count(database, user_session) == 0

    def test_fourteen_days_without_use(
        self, browser: Browser, link: str, clock: Clock, sessions: SessionService
    ) -> None:
        browser.log_in(token=link)
        for _ in range(3):
            clock.advance(14 * DAY_S - 1)
            assert browser.is_known()
            sessions.usage.write()
        clock.advance(14 * DAY_S)
        assert_out(browser)

    def test_ninety_days_at_most(
        self, browser: Browser, link: str, clock: Clock, sessions: SessionService
    ) -> None:
        browser.log_in(token=link)
        for _ in range(89):
            clock.advance(DAY_S)
            answer = browser.who()
            sessions.usage.write()
        assert orjson.loads(answer.body)["expires_at"] == "2026-04-02T03:04:05Z"
        clock.advance(DAY_S - 1)
        assert browser.is_known()
        clock.advance(1)
        assert_out(browser)

    @pytest.mark.parametrize("how", ["revoked", "rolled", "expired", "deactivated", "deactivated and back"])
    def test_with_what_it_was_made_from(
        self, browser: Browser, accounts: AccountService, owner: int, clock: Clock, how: str
    ) -> None:
        key = accounts.create_key(owner, "k", ["*"], expires_at=clock.now + timedelta(days=1))
        browser.log_in(personal_api_key=key.value)
        assert browser.is_known()
        match how:
            case "revoked":
                accounts.revoke_key(key.id)
            case "rolled":
                accounts.roll_key(key.id)
            case "expired":
                clock.advance(DAY_S)
            case _:
                accounts.set_active(owner, False)
        if how.endswith("back"):
            accounts.set_active(owner, True)
        assert_out(browser)

    def test_that_of_a_link_with_its_user(
        self, browser: Browser, accounts: AccountService, owner: int, link: str, sessions: SessionService
    ) -> None:
        other = sessions.new_link(owner)
        browser.log_in(token=link)
        accounts.set_active(owner, False)
        assert_out(browser)
        assert_refused(browser.ask("POST", LOGIN, {"token": other}))

    def test_another_key_changes_nothing(
        self, browser: Browser, accounts: AccountService, owner: int, first: FirstStart
    ) -> None:
        other = accounts.create_key(owner, "other", ["*"])
        browser.log_in(personal_api_key=first.api_key)
        accounts.roll_key(other.id)
        accounts.revoke_key(other.id)
        assert browser.is_known()

    def test_what_is_over_is_forgotten(
        self, database: Database, browser: Browser, sessions: SessionService, owner: int, clock: Clock
    ) -> None:
        browser.log_in(token=sessions.new_link(owner))
        sessions.new_link(owner)
        assert sessions.forget_old() == 0
        clock.advance(DAY_S)
        assert sessions.forget_old() == 2  # the links
        clock.advance(14 * DAY_S)
        assert sessions.forget_old() == 1
        assert (count(database, user_session), count(database, login_link)) == (0, 0)

    def test_the_least_used_goes_where_there_are_too_many(
        self,
        browser: Browser,
        open_browser: Callable[..., Browser],
        first: FirstStart,
        clock: Clock,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(service, "MAX_SESSIONS_PER_KEY", 3)
        browsers = [browser, *(open_browser() for _ in range(3))]
        for each in browsers:
            each.log_in(personal_api_key=first.api_key)
            clock.advance(10)
        assert [each.is_known() for each in browsers] == [False, True, True, True]

    @pytest.mark.parametrize("by_link", [False, True])
    def test_a_key_ends_no_session_of_another(
        self,
        browser: Browser,
        open_browser: Callable[..., Browser],
        accounts: AccountService,
        owner: int,
        first: FirstStart,
        link: str,
        clock: Clock,
        by_link: bool,
    ) -> None:
        browser.log_in(**({"token": link} if by_link else {"personal_api_key": first.api_key}))
        keys = [accounts.create_key(owner, f"k{number}", ["feature_flag:read"]).value for number in range(6)]
        other = open_browser(address="192.0.2.9")
        for key in keys:
            clock.advance(60)
            for _ in range(service.MAX_SESSIONS_PER_KEY + 1):
                other.cookie = ""
                other.log_in(personal_api_key=key)
        assert browser.is_known()


class TestList:
    def test_a_key_ends_no_session_that_may_do_more(
        self,
        browser: Browser,
        open_browser: Callable[..., Browser],
        accounts: AccountService,
        owner: int,
        first: FirstStart,
        link: str,
    ) -> None:
        linked, keyed = open_browser(), open_browser()
        shown = [linked.log_in(token=link)["id"], keyed.log_in(personal_api_key=first.api_key)["id"]]
        key = accounts.create_key(owner, "k", ["user:write"]).value
        mine = open_browser().log_in(personal_api_key=key)["id"]
        browser.log_in(personal_api_key=key)
        for session_id in shown:
            assert browser.ask("DELETE", f"/api/sessions/{session_id}/").status == 403
        assert (linked.is_known(), keyed.is_known()) == (True, True)
        assert browser.ask("DELETE", f"/api/sessions/{mine}/").status == 204

    def test_own_sessions(
        self, browser: Browser, open_browser: Callable[..., Browser], sessions: SessionService, owner: int,
        accounts: AccountService, clock: Clock,
    ) -> None:  # fmt: skip
        other = open_browser(address="192.0.2.77", headers={"user-agent": "x" * 500})
        other.log_in(token=sessions.new_link(owner))
        clock.advance(1)
        mine = browser.log_in(token=sessions.new_link(owner))
        stranger = open_browser()
        stranger.log_in(token=sessions.new_link(accounts.create_user("s@example.com").id))
        listed = orjson.loads(browser.ask("GET", "/api/sessions/").body)
        assert [(each["ip"], each["user_agent"], each["current"]) for each in listed] == [
            ("192.0.2.1", "Tester/1", True),
            ("192.0.2.77", "x" * 400, False),
        ]
        assert listed[0] == {
            "id": mine["id"],
            "created_at": "2026-01-02T03:04:06Z",
            "last_seen_at": "2026-01-02T03:04:06Z",
            "user_agent": "Tester/1",
            "ip": "192.0.2.1",
            "current": True,
        }
        assert stranger.ask("DELETE", f"/api/sessions/{listed[1]['id']}/").status == 404
        assert other.is_known()
        assert browser.ask("DELETE", f"/api/sessions/{listed[1]['id']}/").status == 204
        assert_out(other)
        assert browser.ask("DELETE", f"/api/sessions/{listed[1]['id']}/").status == 404
        assert browser.is_known()

    def test_what_is_over_is_not_listed(
        self, browser: Browser, sessions: SessionService, accounts: AccountService, owner: int, clock: Clock
    ) -> None:
        key = accounts.create_key(owner, "k", ["*"], expires_at=clock.now + timedelta(seconds=1))
        browser.log_in(personal_api_key=key.value)
        assert len(sessions.sessions(owner)) == 1
        clock.advance(1)
        assert sessions.sessions(owner) == []

    def test_needs_the_scope(self, browser: Browser, accounts: AccountService, owner: int) -> None:
        key = accounts.create_key(owner, "k", ["user:read"])
        shown = browser.log_in(personal_api_key=key.value)
        assert browser.ask("GET", "/api/sessions/").status == 200
        assert browser.ask("DELETE", f"/api/sessions/{shown['id']}/").status == 403

    def test_last_seen_is_written_by_and_by(
        self, browser: Browser, sessions: SessionService, link: str, clock: Clock, owner: int
    ) -> None:
        browser.log_in(token=link)
        made = clock.now
        clock.advance(100)
        browser.who()
        assert sessions.sessions(owner)[0]["last_seen_at"] == made
        assert sessions.usage.write() == 1
        assert sessions.sessions(owner)[0]["last_seen_at"] == clock.now


def test_levels_are_those_of_the_user(
    open_browser: Callable[..., Browser], accounts: AccountService, sessions: SessionService
) -> None:
    member = accounts.create_user("m@example.com")
    accounts.join(accounts.projects()[0].organization_id, member.id, Level.MEMBER)
    browser = open_browser()
    browser.log_in(token=sessions.new_link(member.id))
    assert browser.ask("PATCH", "/api/projects/1/", {"name": "x"}).status == 403
    assert browser.ask("GET", "/api/projects/1/").status == 200


def count(database: Database, table: Any) -> int:
    with database.read() as connection:
        return connection.scalar(select(func.count()).select_from(table)) or 0
