"""Addresses of servers with passwords in them: checked before a driver reads them, whose errors would quote them.

A password with a character that ends it early (``/``, ``?``, ``#``, ``@``) makes its rest a host, a database or a
parameter, whose names are shown. Such an address is refused, with an error that holds nothing of it.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from urllib.parse import unquote

from hoglab.patterns import anchored, searched

ESCAPES = "in names and passwords write % as %25, @ as %40, / as %2F, : as %3A, ? as %3F, # as %23, & as %26"
"""Advice of every error about an address."""

_STRAY_PERCENT = searched(r"%(?![0-9a-fA-F]{2})")
_UNPRINTABLE = searched(r"[\x00-\x20\x7f-\xa0\u2028\u2029]")
_HOST = r"(?:\[[0-9a-fA-F:.]+(?:%25[\w.-]+)?\]|[\w.~-]*|(?:%2[fF][\w.~%-]*))"
_HOSTS = anchored(rf"{_HOST}(?::[0-9]{{1,5}})?(?:,{_HOST}(?::[0-9]{{1,5}})?)*")
_PORT = searched(r":([0-9]+)(?=,|$)")
MAX_PORT = 65_535


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Parts of ``scheme://user:password@host:port,host:port/path?parameter=value``, decoded but for ``hosts``."""

    user: str | None
    password: str | None
    hosts: str
    path: str
    parameters: dict[str, str]

    @classmethod
    def parse(cls, url: str, parameters: Set[str] | None = None) -> ServerAddress:
        """Return the parts of a URL. ``parameters``: names that it may have, None for any.

        Raises `ValueError`, whose text quotes nothing of the URL.
        """
        _, _, rest = url.strip().partition("://")
        if _STRAY_PERCENT.search(rest):
            raise ValueError(f"it has a % that begins no escape: {ESCAPES}")
        if _UNPRINTABLE.search(rest):
            raise ValueError("it has blanks or control characters, which are written as %20 and the like")
        if "#" in rest:
            raise ValueError(f"it has a #: {ESCAPES}")
        before, _, query = rest.partition("?")
        authority, _, path = before.partition("/")
        login, at, hosts = authority.rpartition("@")
        if "@" in login or "@" in path or "@" in query:
            raise ValueError(f"it has an @ in a name, a password or behind the host: {ESCAPES}")
        if not _HOSTS.fullmatch(hosts) or any(int(port) > MAX_PORT for port in _ports(hosts)):
            raise ValueError(f"what stands where the host belongs is no host and port: {ESCAPES}")
        if "/" in path:
            raise ValueError(f"it has more than one / behind the host: {ESCAPES}")
        user, colon, password = login.partition(":")
        return cls(
            unquote(user) if at else None,
            unquote(password) if colon else None,
            hosts,
            unquote(path),
            _parameters(query, parameters),
        )


def _ports(hosts: str) -> list[str]:
    return _PORT.findall(hosts)


def _parameters(query: str, known: Set[str] | None) -> dict[str, str]:
    parameters: dict[str, str] = {}
    for part in query.split("&") if query else ():
        name, is_given, value = part.partition("=")
        if not is_given or (known is not None and name not in known):
            allowed = "" if known is None else f"; it may have {', '.join(sorted(known))}"
            raise ValueError(f"it has a parameter that is none{allowed}. {ESCAPES[0].upper()}{ESCAPES[1:]}")
        parameters[name] = unquote(value)
    return parameters
