"""Every template does what its cases say: run by delivery, with the requests that really leave."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
import pytest
from tests.delivery.conftest import NOW, House, prepared, stored
from tests.delivery.mailbox import Mail, Mailbox
from tests.functions.mmdb import database as mmdb
from tests.functions.templates.cases import CASES, KEYS, Case
from tests.functions.templates.receiver import Hosts

from hoglab.accounts.bootstrap import FirstStart
from hoglab.delivery.outbound import resolver
from hoglab.delivery.outbound.mail import MailServer
from hoglab.delivery.trials.runs import NOT_MATCHING, TestRuns
from hoglab.filters.hog import FilterContext
from hoglab.functions.configuration.builder import Builder, FunctionPatch
from hoglab.functions.runtime.compile import compile_configuration
from hoglab.functions.runtime.geoip import GeoIp

__all__ = ["prepared"]  # a fixture

RUN_ID = str(UUID(int=5))
PLACE = {
    "city": {"names": {"en": "Linköping"}, "confidence": 70},
    "continent": {"code": "EU", "names": {"en": "Europe"}},
    "country": {"iso_code": "SE", "names": {"en": "Sweden"}},
    "location": {"accuracy_radius": 76, "latitude": 58.4, "longitude": 15.6, "time_zone": "Europe/Stockholm"},
    "postal": {"code": "58002"},
    "subdivisions": [{"iso_code": "E", "names": {"en": "Östergötland County"}}],
}


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    hosts = Hosts()
    yield hosts
    hosts.close()


@pytest.fixture(scope="module")
def mailbox() -> Iterator[Mailbox]:
    mailbox = Mailbox()
    yield mailbox
    mailbox.close()


@pytest.fixture(scope="module")
def house(
    prepared: tuple[Path, FirstStart],
    tmp_path_factory: pytest.TempPathFactory,
    geoip_database: Path,
    mailbox: Mailbox,
) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("templates")
    options = {
        "geoip_database": geoip_database,
        "mail_server": MailServer.parse(mailbox.url),
    }
    house = House(Path(shutil.copytree(prepared[0], folder / "data")), options, now=lambda: NOW)
    house.open()
    yield house
    house.close()


@pytest.fixture(scope="module")
def geoip_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("geoip") / "city.mmdb"
    path.write_bytes(mmdb("89.160.20.0/24", PLACE))
    return path


@pytest.fixture(scope="module")
def geoip(geoip_database: Path) -> Iterator[GeoIp]:
    geoip = GeoIp(geoip_database)
    yield geoip
    geoip.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_templates_do_what_their_cases_say(
    case: Case, house: House, hosts: Hosts, mailbox: Mailbox, geoip: GeoIp, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts.lead_here(monkeypatch)
    mailbox.mails.clear()
    hosts.answer_with(case.responses)
    configuration = Builder(FunctionPatch(case.function()), None, FilterContext()).build()
    function = compile_configuration(
        configuration, FilterContext(), function_id="f", project_id=1, geoip=geoip.city
    )
    runs = TestRuns(house.delivery)
    globals_ = case.globals
    if case.template.type == "transformation":
        del globals_["person"]
    report = runs.run(house.project, function, globals_, run_id=RUN_ID, mock=False).answer()

    errors = [
        text.removeprefix(f"Error executing function on event {globals_['event']['uuid']}: ")
        for text in report["errors"]
    ]
    assert (errors[-1] if errors else None) == case.given.get("error")
    sent = [
        {"method": one.method, "url": one.url, "headers": one.headers, "body": one.data()}
        for one in hosts.requests
    ]
    if "requests" in case.given:
        assert sent == [_expected(one) for one in case.requests]
    assert [_said(one) for one in mailbox.mails] == case.given.get("emails", [])
    assert not hosts.answers, "a response was not asked for"
    if case.template.type == "transformation" and "error" not in case.given:
        result = report["result"]
        assert (result and {name: result[name] for name in case.given["result"]}) == case.given["result"]
    printed = [line for line in report["logs"] if line["level"] == "info" and line["message"] != NOT_MATCHING]
    assert len(printed) == case.given.get("printed_lines", 0)
    for secret in case.secrets():
        assert secret not in orjson.dumps(report).decode()


def reaching() -> list[Case]:
    """Of each template one case in which it sends a request."""
    found: dict[str, Case] = {}
    for case in CASES:
        if case.given.get("requests"):
            found.setdefault(case.template.id, case)
    return list(found.values())


@pytest.mark.parametrize("case", reaching(), ids=lambda case: case.id)
def test_templates_name_no_status_that_nobody_sent(
    case: Case, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they make of a name that does not exist, whatever the status is that programs get to see."""

    def look_up(host: str, _port: int) -> list[Any]:
        raise socket.gaierror(socket.EAI_NONAME, f"nobody knows {host}")

    monkeypatch.setattr(resolver, "look_up", look_up)
    configuration = Builder(FunctionPatch(case.function()), None, FilterContext()).build()
    function = compile_configuration(configuration, FilterContext(), function_id="f", project_id=1)
    report = (
        TestRuns(house.delivery)
        .run(house.project, function, case.globals, run_id=RUN_ID, mock=False)
        .answer()
    )
    told, error = report["errors"][0], report["errors"][-1]
    assert "Invalid hostname: there is no address for " in told
    assert "could not be reached: Invalid hostname: there is no address for " in error
    assert "500" not in error


def _said(mail: Mail) -> dict[str, Any]:
    parts = {"text": mail.part("plain"), "html": mail.part("html")}
    head = {
        "from": str(mail.message["From"]),
        "to": str(mail.message["To"]),
        "subject": mail.message["Subject"],
    }
    return head | {name: text for name, text in parts.items() if text is not None}


def _expected(request: dict[str, Any]) -> dict[str, Any]:
    headers = {name.lower(): value for name, value in request.get("headers", {}).items()}
    return {
        "method": request["method"],
        "url": request["url"],
        "headers": {"accept": "*/*", **headers},
        "body": request.get("body", ""),
    }


def test_cases_are_well_formed() -> None:
    for case in CASES:
        assert set(case.given) <= KEYS, case.id
        assert {"requests", "emails", "error", "result"} & set(case.given), f"{case.id} asserts nothing"


def test_the_worker_delivers_what_a_template_sends_and_tries_again(
    prepared: tuple[Path, FirstStart], tmp_path: Path, hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a stored event through queue and retry: an outage of the service is the runtime's affair."""
    hosts.lead_here(monkeypatch)
    hosts.answer_with([{"status": 503}, {"status": 200, "body": {"results": [{"id": "1"}]}}])
    case = next(case for case in CASES if case.id == "hubspot: writes a contact")
    house = House(Path(shutil.copytree(prepared[0], tmp_path / "data")))
    house.open()
    try:
        made = house.functions.create(house.project, None, FunctionPatch(case.function()))
        person = {"email": "ann@example.com", "first_name": "Ann"}
        house.run(stored("$identify", person=person), stored("something else", person=person))
        assert house.metrics(made)["succeeded"] == 1
    finally:
        house.close()
    assert [one.data() for one in hosts.requests] == [case.requests[0]["body"]] * 2
