"""The transformation that adds places, which projects have from the beginning (spec: hog-functions-api 4.1)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from tests.functions.conftest import Api
from tests.functions.mmdb import database as mmdb

from hoglab.accounts.activity import entries
from hoglab.accounts.service import AccountService
from hoglab.functions.defaults import GeoIpByDefault
from hoglab.functions.runtime.geoip import MAX_ADDRESS_CHARS, PLACE_FIELDS, GeoIp, GeoIpError
from hoglab.functions.secrets.box import SecretBox
from hoglab.storage.database import Database

PLACE = {
    "country": {"iso_code": "SE", "names": {"en": "Sweden"}},
    "location": {"time_zone": "Europe/Stockholm"},
}


# --- the database


@pytest.fixture
def geoip(tmp_path: Path) -> Iterator[GeoIp]:
    path = tmp_path / "city.mmdb"
    path.write_bytes(mmdb("89.160.20.0/24", PLACE))
    geoip = GeoIp(path)
    yield geoip
    geoip.close()


def test_fields_are_named_as_programs_know_them(geoip: GeoIp) -> None:
    found = geoip.city("89.160.20.112")
    assert found == {
        "country": {"isoCode": "SE", "names": {"en": "Sweden"}},
        "location": {"timeZone": "Europe/Stockholm"},
    }


@pytest.mark.parametrize("address", ["10.0.0.1", "no address", "::1", "fe80::1%" + "a" * MAX_ADDRESS_CHARS])
def test_unknown_addresses(geoip: GeoIp, address: str) -> None:
    assert geoip.city(address) is None


def test_only_what_may_be_an_address_is_remembered(geoip: GeoIp) -> None:
    for length in (10, MAX_ADDRESS_CHARS, MAX_ADDRESS_CHARS + 1, 1_000_000):
        assert geoip.city("1" * length) is None
    assert geoip._remembered.cache_info().currsize == 2


def test_what_a_program_does_to_a_record_stays_with_it(geoip: GeoIp) -> None:
    found = geoip.city("89.160.20.112")
    assert found is not None
    found["country"]["isoCode"] = "XX"
    again = geoip.city("89.160.20.112")
    assert again is not None
    assert again["country"]["isoCode"] == "SE"


def test_the_place_of_an_address(geoip: GeoIp) -> None:
    assert geoip.place("89.160.20.112") == {
        "$geoip_country_code": "SE",
        "$geoip_country_name": "Sweden",
        "$geoip_time_zone": "Europe/Stockholm",
    }
    assert geoip.place("10.0.0.1") == {}


def test_a_place_in_full(tmp_path: Path) -> None:
    path = tmp_path / "city.mmdb"
    counties = [
        {"iso_code": "ENG", "names": {"en": "England"}},
        {"iso_code": "WBK", "names": {"en": "West Berkshire"}},
    ]
    path.write_bytes(
        mmdb("2.125.160.0/24", {"subdivisions": counties, "city": "no record", "postal": {"code": "OX1"}})
    )
    geoip = GeoIp(path)
    assert geoip.place("2.125.160.216") == {
        "$geoip_subdivision_1_name": "England",
        "$geoip_subdivision_1_code": "ENG",
        "$geoip_subdivision_2_name": "West Berkshire",
        "$geoip_subdivision_2_code": "WBK",
        "$geoip_postal_code": "OX1",
    }
    geoip.close()


def test_flags_and_the_transformation_know_the_same_of_a_place() -> None:
    code = files("hoglab.functions.templates").joinpath("geoip/code.hog").read_text()
    place = code.partition("let place := {")[2].partition("}")[0]
    assert re.findall(r"'(\w+)':", place) == list(PLACE_FIELDS)


@pytest.mark.parametrize("content", [None, b"", b"no database"])
def test_a_file_that_is_no_database_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "broken.mmdb"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(GeoIpError, match=r"broken\.mmdb"):
        GeoIp(path)


# --- the transformation


@pytest.fixture
def default(database: Database, box: SecretBox) -> Iterator[GeoIpByDefault]:
    default = GeoIpByDefault(database, box)
    yield default
    default.stop()


def listed(api: Api, project_id: int = 1) -> list[dict[str, Any]]:
    answer = api.get(f"/api/projects/{project_id}/hog_functions/?full=true")
    found: list[dict[str, Any]] = answer.json()["results"]
    return found


def test_every_project_gets_it_once(
    api: Api, default: GeoIpByDefault, accounts: AccountService, database: Database
) -> None:
    default.start()
    new = accounts.create_project(accounts.projects()[0].organization_id, "new")
    accounts.update_project(new.id, {"name": "renamed"})
    default.start()  # as at another start of the server
    for project_id in (1, new.id):
        (made,) = listed(api, project_id)
        assert (made["template_id"], made["type"], made["enabled"]) == (
            "template-geoip",
            "transformation",
            True,
        )
        assert (made["execution_order"], made["created_by"], made["version"]) == (1, None, 1)
        assert (made["name"], made["hog"]) == ("GeoIP", made["template"]["code"])
    with database.read() as connection:
        history, _ = entries(connection, 1, scopes=["HogFunction"], limit=10, offset=0)
    assert [(one["activity"], one["user"], one["is_system"]) for one in history] == [("created", None, True)]


@pytest.mark.parametrize("change", [{"deleted": True}, {"enabled": False}])
def test_who_does_without_it_keeps_doing_so(
    api: Api, default: GeoIpByDefault, change: dict[str, Any]
) -> None:
    default.start()
    (made,) = listed(api)
    api.change(made, **change)
    default.start()
    assert [one["enabled"] for one in listed(api)] == ([] if "deleted" in change else [False])


@pytest.mark.parametrize(("there", "given"), [([3, 7], 2), ([0], 0), ([None], 0)])
def test_older_projects_get_it_before_what_they_have(
    api: Api, default: GeoIpByDefault, there: list[int | None], given: int
) -> None:
    """Their own transformations may want to see places."""
    for order in there:
        api.create(type="transformation", hog="return event", execution_order=order)
    default.start()
    (made,) = [one for one in listed(api) if one["template_id"]]
    assert made["execution_order"] == given


def test_who_has_one_already_gets_no_second(api: Api, default: GeoIpByDefault) -> None:
    api.create(type="transformation", template_id="template-geoip", name="Mine")
    default.start()
    assert [one["name"] for one in listed(api)] == ["Mine"]
