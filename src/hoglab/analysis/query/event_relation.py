"""Events as a relation: the columns that statements may read, and a note of the columns that they use.

A property is read from its JSON column, unless the relation has it as a column of its own: tables made for some
statements have the columns that these use, and no others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from hoglab.filters.model import GROUP_TYPES
from hoglab.filters.sql import Parameters

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hoglab.analysis.query.model import Question
    from hoglab.storage.event_store.dialects import Dialect

RESOLVED_EVENTS: Final = "resolved_events"
"""The view of all events, with persons after merges."""
STORED_EVENTS: Final = "stored_events"
"""The view of all events, with their original persons."""

PROMOTED: Final[Mapping[str, str]] = {
    "$feature_flag": "feature_flag",
    "$feature_flag_response": "feature_flag_response",
    "$session_id": "session_id",
}
"""Event properties that these views also have as columns."""

COLUMNS: Final = (
    *("project_id", "seq", "uuid", "event", "distinct_id", "timestamp", "person_id", "elements_chain"),
    *(f"group_{index}" for index in range(GROUP_TYPES)),
    *PROMOTED.values(),
)
"""Columns that statements may read of an event beside its properties."""


class Form(Enum):
    """Form in which a property is read."""

    TEXT = "text"
    NUMBER = "number"
    """Text of the property, where it is a decimal number."""
    JSON_NUMBER = "json_number"


@dataclass(frozen=True, slots=True)
class Property:
    """A property of a JSON column, in the form in which it is read."""

    column: str
    key: str
    form: Form

    @property
    def name(self) -> str:
        """The column of the property, in a relation that has one."""
        place = repr((self.column, self.key, self.form.value))
        return f"p_{hashlib.sha256(place.encode()).hexdigest()[:20]}"

    def as_(self, form: Form) -> Property:
        return Property(self.column, self.key, form)


@dataclass(frozen=True, slots=True)
class ColumnUse:
    """The columns and properties used of events, and whether the moment of reading matters."""

    columns: frozenset[str] = frozenset()
    properties: frozenset[Property] = frozenset()
    now: bool = False

    def __or__(self, other: ColumnUse) -> ColumnUse:
        return ColumnUse(
            self.columns | other.columns, self.properties | other.properties, self.now or other.now
        )

    def __bool__(self) -> bool:
        return bool(self.columns or self.properties)

    @classmethod
    def of(cls, parts: Iterable[ColumnUse]) -> ColumnUse:
        """Return the union of several uses."""
        union = cls()
        for part in parts:
            union |= part
        return union


@dataclass(frozen=True, slots=True)
class ExposureTables:
    """Tables that replace the first stage of every statement with the same exposures."""

    question: Question
    """One of the questions with these exposures."""
    names: tuple[str, ...]
    """The table of each subquery of the stage."""

    def stand_for(self, question: Question) -> bool:
        mine = self.question
        return (question.exposures, question.span, question.zone) == (mine.exposures, mine.span, mine.zone)


@dataclass(frozen=True, slots=True)
class EventRelation:
    """A relation of events by its name.

    ``entity`` is the column that has the entity, or NULL; None: there is one for each kind of entities.
    Properties are columns in each of the ``property_forms``, named by `Property.name`.
    """

    name: str = RESOLVED_EVENTS
    entity: str | None = None
    property_forms: frozenset[Form] = frozenset()
    exposures: ExposureTables | None = None


ALL_EVENTS: Final = EventRelation()
NO_USE: Final = ColumnUse()


class RelationRow:
    """A row of a relation of events, which notes the columns that expressions use; see `hoglab.filters.sql.Row`."""

    def __init__(
        self, dialect: Dialect, parameters: Parameters, relation: EventRelation = ALL_EVENTS
    ) -> None:
        self.dialect = dialect
        self.parameters = parameters
        self._relation = relation
        self._begin()

    def _begin(self) -> None:
        self._columns: set[str] = set()
        self._properties: set[Property] = set()
        self._now = False

    def take_use(self) -> ColumnUse:
        """Return the columns and properties used since the last call."""
        use = ColumnUse(frozenset(self._columns), frozenset(self._properties), self._now)
        self._begin()
        return use

    def column(self, name: str) -> str:
        self._columns.add(name)
        return name

    def text(self, column: str, key: str) -> str:
        if column == "properties" and key in PROMOTED:
            return self.column(PROMOTED[key])
        return self.read(Property(column, key, Form.TEXT))

    def number(self, column: str, key: str) -> str:
        if column == "properties" and key in PROMOTED:
            return self.dialect.number(self.column(PROMOTED[key]))
        return self.read(Property(column, key, Form.NUMBER))

    def json_number(self, column: str, key: str) -> str:
        return self.read(Property(column, key, Form.JSON_NUMBER))

    def depend_on_now(self) -> None:
        self._now = True

    def read(self, wanted: Property) -> str:
        """Return a property in a form, from its JSON or from its own column."""
        if wanted.form is Form.NUMBER and Form.NUMBER not in self._relation.property_forms:
            return self.dialect.number(self.read(wanted.as_(Form.TEXT)))
        self._properties.add(wanted)
        if wanted.form in self._relation.property_forms:
            return wanted.name
        if wanted.form is Form.JSON_NUMBER:
            return self.dialect.json_number(wanted.column, wanted.key, self.parameters)
        return self.dialect.property_text(wanted.column, wanted.key, self.parameters)
