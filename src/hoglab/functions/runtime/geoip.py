"""Location of an address, by a GeoIP database in MaxMind's format (spec: sdk-wire 1.8, hog-runtime 7.2)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import maxminddb

from hoglab.hog import from_json

if TYPE_CHECKING:
    from pathlib import Path

REMEMBERED_ADDRESSES = 10_000
MAX_ADDRESS_CHARS = 64
"""Maximum length of an address; a longer text is none, and is not remembered either."""

PLACE_FIELDS: Mapping[str, tuple[str | int, ...]] = {
    "city_name": ("city", "names", "en"),
    "city_confidence": ("city", "confidence"),
    "subdivision_1_name": ("subdivisions", 0, "names", "en"),
    "subdivision_1_code": ("subdivisions", 0, "isoCode"),
    "subdivision_2_name": ("subdivisions", 1, "names", "en"),
    "subdivision_2_code": ("subdivisions", 1, "isoCode"),
    "country_name": ("country", "names", "en"),
    "country_code": ("country", "isoCode"),
    "continent_name": ("continent", "names", "en"),
    "continent_code": ("continent", "code"),
    "postal_code": ("postal", "code"),
    "latitude": ("location", "latitude"),
    "longitude": ("location", "longitude"),
    "accuracy_radius": ("location", "accuracyRadius"),
    "time_zone": ("location", "timeZone"),
}
"""Paths in a record to the properties of a place, named ``$geoip_…``, as in the template `geoip`."""


class GeoIpError(Exception):
    """The database cannot be used; the text is one line."""


class GeoIp:
    """An open database. `city` is the function that transformations call `geoipLookup`."""

    def __init__(self, path: Path) -> None:
        """Open a database. Raises `GeoIpError`."""
        try:
            self._reader = maxminddb.open_database(path)
        except (OSError, maxminddb.InvalidDatabaseError, ValueError) as error:
            raise GeoIpError(f"the GeoIP database {path} cannot be read: {error}") from error
        self._remembered = lru_cache(REMEMBERED_ADDRESSES)(self._look_up)
        self.place = lru_cache(REMEMBERED_ADDRESSES)(self._place)
        """The properties ``$geoip_…`` of an address, for flags.

        The mapping is shared; it is empty when nothing is known.
        """

    def city(self, ip: str) -> dict[str, Any] | None:
        """Return the city record of an address as programs get it, as a copy; None when there is none."""
        if len(ip) > MAX_ADDRESS_CHARS:
            return None
        record: dict[str, Any] | None = from_json(self._remembered(ip))
        return record

    def _look_up(self, ip: str) -> dict[str, Any] | None:
        try:
            record = self._reader.get(ip_address(ip))
        except (ValueError, maxminddb.InvalidDatabaseError):
            return None
        return _camel_case(record) if isinstance(record, dict) else None

    def _place(self, ip: str) -> Mapping[str, Any]:
        record = self._remembered(ip)
        properties = {f"$geoip_{name}": _at(record, path) for name, path in PLACE_FIELDS.items()}
        return {name: value for name, value in properties.items() if value is not None}

    def close(self) -> None:
        self._reader.close()


def _at(value: Any, path: tuple[str | int, ...]) -> Any:
    for key in path:
        if isinstance(key, int):
            value = value[key] if isinstance(value, list) and len(value) > key else None
        else:
            value = value.get(key) if isinstance(value, dict) else None
    return value


def _camel_case(value: Any) -> Any:
    """Return a record with the field names that JavaScript's readers of such databases use."""
    if isinstance(value, list):
        return [_camel_case(element) for element in value]
    if not isinstance(value, dict):
        return value
    changed = {}
    for name, item in value.items():
        first, *rest = name.split("_")
        changed[first + "".join(part.capitalize() for part in rest)] = (
            item if name == "names" else _camel_case(item)
        )
    return changed
