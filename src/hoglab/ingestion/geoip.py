"""Where an event came from, by a GeoIP database in MaxMind's format (spec: sdk-wire 1.8)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

import maxminddb

if TYPE_CHECKING:
    from hoglab.ingestion.normalise import Event

REMEMBERED_ADDRESSES = 10_000

_PREFIX = "$geoip_"
_INITIAL = "$initial_geoip_"


class GeoIpError(Exception):
    """The database cannot be used; the text is one line."""


class GeoIp:
    """Adds ``$geoip_*`` properties to events, and to their persons."""

    def __init__(self, path: Path) -> None:
        """Raises `GeoIpError`."""
        try:
            self._reader = maxminddb.open_database(path)
        except (OSError, maxminddb.InvalidDatabaseError, ValueError) as error:
            raise GeoIpError(f"the GeoIP database {path} cannot be read: {error}") from error
        self._facts = lru_cache(REMEMBERED_ADDRESSES)(self._look_up)

    def locate(self, events: Iterable[Event]) -> None:
        """Add what the addresses of events tell, unless an event forbids it."""
        for event in events:
            properties = event.properties
            ip = properties.get("$ip")
            if not isinstance(ip, str) or properties.get("$geoip_disable") is True:
                continue
            facts = self._facts(ip)
            if facts:
                _add(properties, facts)

    def _look_up(self, ip: str) -> Mapping[str, Any]:
        """What is known of an address, by the names of properties without their prefix."""
        try:
            record = self._reader.get(ip_address(ip))
        except (ValueError, maxminddb.InvalidDatabaseError):
            return {}
        return {name: value for name, value in _facts(record) if value is not None}

    def city(self, ip: str) -> dict[str, Any] | None:
        """The city record of an address as programs get it of `geoipLookup` (spec: hog-runtime 7.2), None when
        there is none."""
        try:
            record = self._reader.get(ip_address(ip))
        except (ValueError, maxminddb.InvalidDatabaseError):
            return None
        return _camel_case(record) if isinstance(record, dict) else None

    def close(self) -> None:
        self._reader.close()


def _add(properties: dict[str, Any], facts: Mapping[str, Any]) -> None:
    named = {_PREFIX + name: value for name, value in facts.items()}
    properties.update(named)
    given_set, given_once = properties.get("$set"), properties.get("$set_once")
    once = {_INITIAL + name: value for name, value in facts.items()}
    properties["$set"] = {**named, **given_set} if isinstance(given_set, dict) else named
    properties["$set_once"] = {**once, **given_once} if isinstance(given_once, dict) else once


def _facts(record: Any) -> Iterator[tuple[str, Any]]:
    city, country, continent = _part(record, "city"), _part(record, "country"), _part(record, "continent")
    location = _part(record, "location")
    yield "city_name", _english(city)
    yield "city_confidence", city.get("confidence")
    divisions = record.get("subdivisions") if isinstance(record, dict) else None
    for number, division in enumerate(divisions[:2] if isinstance(divisions, list) else (), 1):
        if isinstance(division, dict):
            yield f"subdivision_{number}_name", _english(division)
            yield f"subdivision_{number}_code", division.get("iso_code")
    yield "country_name", _english(country)
    yield "country_code", country.get("iso_code")
    yield "continent_name", _english(continent)
    yield "continent_code", continent.get("code")
    yield "postal_code", _part(record, "postal").get("code")
    for name in ("latitude", "longitude", "accuracy_radius", "time_zone"):
        yield name, location.get(name)


def _camel_case(value: Any) -> Any:
    """A record with the names of its fields written as JavaScript's readers of such databases write them."""
    if isinstance(value, list):
        return [_camel_case(one) for one in value]
    if not isinstance(value, dict):
        return value
    changed = {}
    for name, one in value.items():
        first, *rest = name.split("_")
        changed[first + "".join(part.capitalize() for part in rest)] = (
            one if name == "names" else _camel_case(one)
        )
    return changed


def _part(record: Any, name: str) -> dict[str, Any]:
    part = record.get(name) if isinstance(record, dict) else None
    return part if isinstance(part, dict) else {}


def _english(part: dict[str, Any]) -> Any:
    names = part.get("names")
    return names.get("en") if isinstance(names, dict) else None
