"""Addresses with passwords: no error, name or traceback says anything of a password, however badly it was written."""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from hoglab import settings
from hoglab.delivery.outbound import MailServer
from hoglab.storage.database.errors import DatabaseError
from hoglab.storage.event_store import EventStoreUnavailableError
from hoglab.storage.server_address import ServerAddress

PIECES = ("Zq7x", "wK9v", "Jb3y")
"""Parts of the passwords, which stand nowhere else."""
SPECIAL = [
    "%",
    "%zz",
    "@",
    "/",
    ":",
    "?",
    "#",
    "&",
    "=",
    "[",
    "]",
    "]@[::1",
    "@[",
    ",",
    ";",
    "'",
    '"',
    "\\",
    " ",
    "\t",
]
SPECIAL += [
    "\n",
    "ü",
    "\u2028",
    "\U0001f994",
    "%00",
    "//",
    "?a=",
    "&b=",
    "@h/",
    ":5432/",
    "$(",
    "{",
    "|",
    "+",
    "~",
]
PASSWORDS = [special.join(PIECES) for special in SPECIAL]
PASSWORDS += [f"{a}Zq7x{b}wK9v" for a, b in itertools.product(SPECIAL[:12], repeat=2)]
PASSWORDS += [f"Zq7x{special}" for special in SPECIAL]


def postgres(url: str) -> Any:
    from hoglab.storage.database.postgres.driver import Driver

    driver = Driver(url, "hoglab")
    assert_silent(driver.name)
    return driver._arguments.get("password")


def clickhouse(url: str) -> Any:
    from hoglab.storage.event_store.clickhouse.connection import ClickHouseAddress

    address = ClickHouseAddress(url)
    assert_silent(f"{address.host} {address.database}")
    return address.password


def kafka(url: str) -> Any:
    from hoglab.storage.event_log.kafka_topic import KafkaAddress

    address = KafkaAddress.parse(url)
    assert_silent(f"{address.name} {address.brokers} {address!r}")
    return address.client.get("sasl.password")


def mail(url: str) -> Any:
    server = MailServer.parse(url)
    assert_silent(f"{server.host} {server!r}")
    return server.password


FORMS: list[tuple[Callable[[str], Any], str, str]] = [
    (postgres, "HOGLAB_DATABASE_URL", "postgresql://me:{}@db.example.com/flags"),
    (postgres, "HOGLAB_DATABASE_URL", "postgresql://me:{}@db.example.com:5432"),
    (postgres, "HOGLAB_DATABASE_URL", "postgresql://me:{}@[::1]:5432/flags?sslmode=require"),
    (postgres, "HOGLAB_DATABASE_URL", "postgresql://me@db.example.com/flags?password={}"),
    (postgres, "HOGLAB_DATABASE_URL", "postgresql://me@db.example.com/flags?password={}&sslmode=require"),
    (clickhouse, "HOGLAB_EVENT_STORE_URL", "clickhouse://me:{}@db.example.com:8123/hoglab"),
    (clickhouse, "HOGLAB_EVENT_STORE_URL", "clickhouse://me:{}@db.example.com/hoglab?secure=true"),
    (clickhouse, "HOGLAB_EVENT_STORE_URL", "clickhouse://me@db.example.com/hoglab?password={}"),
    (kafka, "HOGLAB_EVENT_LOG_URL", "kafka://me:{}@b1:9092/events"),
    (kafka, "HOGLAB_EVENT_LOG_URL", "kafka://b1:9092/events?sasl.password={}"),
    (kafka, "HOGLAB_EVENT_LOG_URL", "kafka://b1:9092/events?sasl.password={}&partitions=8"),
    (mail, "HOGLAB_SMTP_URL", "smtp://me:{}@mail.example.com:587"),
    (mail, "HOGLAB_SMTP_URL", "smtps://me:{}@mail.example.com"),
]


def assert_silent(text: str) -> None:
    for piece in PIECES:
        assert piece not in text, text


@pytest.mark.parametrize(("read", "variable", "form"), FORMS, ids=[form[2] for form in FORMS])
def test_a_password_is_understood_or_kept_quiet(
    read: Callable[[str], Any], variable: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOGLAB_DATABASE_URL", "postgresql://db.example.com/flags")
    monkeypatch.setenv("HOGLAB_EVENT_STORE_URL", "clickhouse://db.example.com/hoglab")
    refused = 0
    for number, password in enumerate(PASSWORDS):
        url = form.format(password)
        try:
            read(url)
        except (DatabaseError, EventStoreUnavailableError, ValueError) as error:
            refused += 1
            assert_silent("".join(traceback.format_exception(error)))
        if number % 5:  # loading all settings takes longer than all the rest
            continue
        monkeypatch.setenv(variable, url)
        try:
            assert_silent(repr(settings.load()))
        except settings.SettingsError as error:
            assert_silent("".join(traceback.format_exception(error)))
    assert refused > 0


WITH_PASSWORD = [form for form in FORMS if not form[2].startswith("kafka://me")]
"""Forms of addresses that have a place for a password."""


@pytest.mark.parametrize(("read", "variable", "form"), WITH_PASSWORD, ids=[form[2] for form in WITH_PASSWORD])
def test_an_escaped_password_is_the_one_that_was_meant(
    read: Callable[[str], Any], variable: str, form: str
) -> None:
    for password in ("%", "a@b", "a/b", "a:b", "a?b", "a#b", "a&b", "]@[::1", "ü \U0001f994", "a%2Fb"):
        escaped = "".join(f"%{byte:02X}" for byte in password.encode())
        assert read(form.format(escaped)) == password


def test_a_login_without_a_host_is_no_host() -> None:
    with pytest.raises(DatabaseError) as caught:
        postgres("postgresql://me:Zq7x")
    assert_silent(str(caught.value))


@pytest.mark.parametrize(
    ("url", "hosts", "path"),
    [
        ("postgresql://", "", ""),
        ("postgresql:///flags", "", "flags"),
        ("postgresql://h1:1,h2:2/flags", "h1:1,h2:2", "flags"),
        ("postgresql://u@%2Fvar%2Frun/flags", "%2Fvar%2Frun", "flags"),
        ("postgresql://[fe80::1%25eth0]:1/flags", "[fe80::1%25eth0]:1", "flags"),
        ("kafka://b_1.example:9092,[::1]:9092/t", "b_1.example:9092,[::1]:9092", "t"),
    ],
)
def test_what_an_address_may_look_like(url: str, hosts: str, path: str) -> None:
    address = ServerAddress.parse(url)
    assert (address.hosts, address.path) == (hosts, path)
