"""Semantic versions in filters of feature flags (spec: sdk-wire 3.8)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import total_ordering

from hoglab.patterns import anchored

MAX_TEXT_LENGTH = 256
"""Longer texts are not versions."""

_VERSION = anchored(
    r"[vV]?([0-9]{1,18})(?:\.([0-9]{1,18}))?(?:\.([0-9]{1,18}))?"
    r"(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
    r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)
_WILDCARD = anchored(r"[vV]?([0-9]{1,18})(?:\.([0-9]{1,18}))?(?:\.([0-9]{1,18}))?(?:\.\*)*")

Core = tuple[int, int, int]


@total_ordering
@dataclass(frozen=True, slots=True)
class Version:
    """A version in the precedence order of semver.org: build metadata is not part of it."""

    core: Core
    prerelease: tuple[str, ...] = ()

    def __lt__(self, other: Version) -> bool:
        return self._order() < other._order()

    def _order(self) -> tuple[Core, bool, tuple[tuple[bool, int, str], ...]]:
        """Return a sort key: numeric identifiers are before words, a release is after all of its pre-releases."""
        identifiers = tuple(
            (False, int(part), "") if part.isdigit() else (True, 0, part) for part in self.prerelease
        )
        return self.core, not self.prerelease, identifiers


def parse_version(value: str) -> Version | None:
    """Read a version: missing parts are 0, leading zeros and a leading ``v`` go. None if it is none."""
    match = _VERSION.fullmatch(value.strip()) if len(value) <= MAX_TEXT_LENGTH else None
    if match is None:
        return None
    major, minor, patch, prerelease = match.groups()
    return Version(
        (int(major), int(minor or 0), int(patch or 0)),
        tuple(prerelease.split(".")) if prerelease else (),
    )


@dataclass(frozen=True, slots=True)
class VersionRange:
    """Half-open: ``low <= version < high``; without ``high`` there is no upper end."""

    low: Version
    high: Version | None

    def __contains__(self, version: Version) -> bool:
        return self.low <= version and (self.high is None or version < self.high)


def tilde_range(value: str) -> VersionRange | None:
    """Return the range of a tilde: ``~1.2.3`` is ``>=1.2.3 <1.3.0``."""
    low = parse_version(value)
    if low is None:
        return None
    major, minor, _ = low.core
    return VersionRange(low, Version((major, minor + 1, 0)))


def caret_range(value: str) -> VersionRange | None:
    """Return the range of a caret: ``^1.2.3`` is ``<2.0.0``, ``^0.2.3`` ``<0.3.0``, ``^0.0.3`` ``<0.0.4``."""
    low = parse_version(value)
    if low is None:
        return None
    major, minor, patch = low.core
    if major:
        return VersionRange(low, Version((major + 1, 0, 0)))
    if minor:
        return VersionRange(low, Version((0, minor + 1, 0)))
    return VersionRange(low, Version((0, 0, patch + 1)))


def wildcard_range(value: str) -> VersionRange | None:
    """Return the range of a wildcard: ``1.*`` is ``>=1.0.0 <2.0.0``, ``*`` is every version."""
    text = value.strip()
    if text == "*":
        return VersionRange(Version((0, 0, 0), ("0",)), None)
    match = _WILDCARD.fullmatch(text) if len(text) <= MAX_TEXT_LENGTH else None
    if match is None:
        return None
    parts = [int(part) for part in match.groups() if part is not None]
    low = (*parts, 0, 0, 0)
    high = (*parts[:-1], parts[-1] + 1, 0, 0, 0)
    return VersionRange(Version((low[0], low[1], low[2])), Version((high[0], high[1], high[2])))
