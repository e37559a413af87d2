"""The subject that flags are evaluated for: the request's data, completed from storage only when necessary.

Spec: sdk-wire 3.3, 3.5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import msgspec

from hoglab.filters.evaluate import MISSING
from hoglab.flags.matching.outcome import FlagFailure, FlagReason
from hoglab.people.cohorts.matching import INITIAL_SOURCES
from hoglab.people.person_cache import StoredPerson


class StoredFacts(Protocol):
    """Point reads for one project. An implementation may raise any exception when storage is out of reach."""

    def person(self, distinct_id: str) -> StoredPerson | None: ...

    def group_properties(self, group_type_index: int, group_key: str) -> Mapping[str, Any] | None: ...

    def is_listed_in_cohort(self, cohort_id: int, person_id: int) -> bool: ...

    def hash_keys(self, distinct_ids: tuple[str, ...]) -> Mapping[str, str]:
        """Return stored bucketing ids by flag key; where persons differ, the first distinct id's person wins."""
        ...


class NoStoredFacts:
    """Nothing is stored: every person is unknown."""

    def person(self, distinct_id: str) -> StoredPerson | None:  # noqa: ARG002
        return None

    def group_properties(self, group_type_index: int, group_key: str) -> Mapping[str, Any] | None:  # noqa: ARG002
        return None

    def is_listed_in_cohort(self, cohort_id: int, person_id: int) -> bool:  # noqa: ARG002
        return False

    def hash_keys(self, distinct_ids: tuple[str, ...]) -> Mapping[str, str]:  # noqa: ARG002
        return {}


_NOTHING_STORED: Final = NoStoredFacts()


class FlagRequest(msgspec.Struct, frozen=True):
    """Subject of an evaluation request, as it was read (spec: sdk-wire 2.1)."""

    distinct_id: str
    person_properties: dict[str, Any] = {}
    groups: dict[str, str] = {}
    group_properties: dict[str, dict[str, Any]] = {}
    anon_distinct_id: str | None = None
    device_id: str | None = None
    only_use_overrides: bool = False


class Subject:
    """One request during its evaluation. Reads of storage happen at most once each, and only on demand."""

    __slots__ = (
        "_cohorts",
        "_facts",
        "_failure",
        "_groups",
        "_hash_keys",
        "_is_complete",
        "_person",
        "_person_read",
        "_place",
        "_use_stored",
        "device_id",
        "group_names",
        "id_bytes",
        "known",
        "request",
        "values",
    )

    def __init__(
        self,
        request: FlagRequest,
        group_names: Mapping[int, str],
        facts: StoredFacts | None = None,
        place: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        """Create the subject of a request.

        ``place`` gives the properties of the request's place; they count like properties that were sent.
        """
        self.request = request
        self.group_names = group_names
        self.known: dict[str, Any] = {"distinct_id": request.distinct_id, **request.person_properties}
        """The known person properties: those of the request, later with the stored ones."""
        self.id_bytes = request.distinct_id.encode()
        self.device_id = request.device_id
        self.values: dict[int, bool | str] = {}
        """Values of flags that others depend on, by flag id; filled in by the evaluation."""
        self._facts: StoredFacts = facts or _NOTHING_STORED
        self._place = place
        self._use_stored = not request.only_use_overrides
        self._is_complete = facts is None or request.only_use_overrides
        self._person: StoredPerson | None = None
        self._person_read = False
        self._groups: dict[tuple[int, str], Mapping[str, Any]] = {}
        self._cohorts: dict[int, bool] = {}
        self._hash_keys: Mapping[str, str] | None = None
        self._failure: StoredFactsError | None = None

    def person_property(self, key: str) -> Any:
        """Return a person property, or `MISSING`.

        The request wins, then its place, then storage, then ``x`` for ``$initial_x``.
        """
        if self._place is not None:
            self.known = {**self._place(), **self.known}
            self._place = None
        value = self.known.get(key, MISSING)
        if value is MISSING and not self._is_complete:
            person = self.person()
            if person is not None:
                self.known = {**person.properties, **self.known}
            self._is_complete = True
            value = self.known.get(key, MISSING)
        if value is MISSING and key in INITIAL_SOURCES:
            value = self.known.get(INITIAL_SOURCES[key], MISSING)
        return value

    def group_property(self, index: int, key: str) -> Any:
        """Return a property of the group of that type that the request names, or `MISSING`."""
        name = self.group_names.get(index)
        if name is None:
            return MISSING
        overrides = self.request.group_properties.get(name)
        if overrides is not None and key in overrides:
            return overrides[key]
        group_key = self.request.groups.get(name)
        if group_key is None:
            return MISSING
        if key == "$group_key":
            return group_key
        if not self._use_stored:
            return MISSING
        place = (index, group_key)
        stored = self._groups.get(place)
        if stored is None:
            stored = self._groups[place] = self._ask(self._facts.group_properties, index, group_key) or {}
        return stored.get(key, MISSING)

    def dependency(self, flag_id: int) -> bool | str:
        """Return the value of a flag that was evaluated before. Raises `FlagFailure` when that failed."""
        value = self.values.get(flag_id)
        if value is None:
            raise FlagFailure(
                FlagReason.EVALUATION_ERROR, "A flag that this one depends on could not be evaluated"
            )
        return value

    def person(self) -> StoredPerson | None:
        """Return the stored person of the distinct id; None for an unknown one."""
        if not self._person_read:
            self._person = self._ask(self._facts.person, self.request.distinct_id)
            self._person_read = True
        return self._person

    def is_listed_in_cohort(self, cohort_id: int) -> bool:
        """Return whether the stored list of a cohort's members has the person; unknown persons are in none."""
        known = self._cohorts.get(cohort_id)
        if known is None:
            person = self.person()
            known = person is not None and self._ask(self._facts.is_listed_in_cohort, cohort_id, person.id)
            self._cohorts[cohort_id] = known
        return known

    def group_key(self, index: int) -> str | None:
        """Return the key of the group that the request names for a group type; None when it names none."""
        name = self.group_names.get(index)
        return None if name is None else self.request.groups.get(name)

    def sticky_id(self, flag_key: str) -> str:
        """Return the identifier of a flag with experience continuity (spec: sdk-wire 3.12)."""
        if self._hash_keys is None:
            request = self.request
            ids = [request.distinct_id]
            if request.anon_distinct_id is not None:
                ids.append(request.anon_distinct_id)
            self._hash_keys = self._ask(self._facts.hash_keys, tuple(ids))
        return self._hash_keys.get(flag_key) or self.request.anon_distinct_id or self.request.distinct_id

    def _ask(self, read: Any, *arguments: Any) -> Any:
        """Read from storage; after one failure storage is not asked again for this request."""
        if self._failure is not None:
            raise self._failure
        try:
            return read(*arguments)
        except FlagFailure:
            raise
        except Exception as error:
            self._failure = StoredFactsError(str(error))
            raise self._failure from error


class StoredFactsError(Exception):
    """Stored properties, memberships or bucketing ids could not be read."""
