"""Lists of persons for static cohorts: JSON and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

from hoglab.http.errors import validation_error
from hoglab.http.fields.fields import parse_uuid

MAX_PERSONS = 1_000_000
"""Maximum number of persons that one request may name."""

PERSON_COLUMNS = frozenset({"person_id", "person_uuid", "uuid"})
DISTINCT_ID_COLUMNS = frozenset({"distinct_id", "distinctid"})
EMAIL_COLUMNS = frozenset({"email", "e_mail", "email_address"})
DELIMITERS = ",;\t|"
"""Characters that may part the columns of a file; spreadsheets write semicolons where the comma is decimal."""


@dataclass(frozen=True, slots=True)
class Members:
    """Persons that a request names: by uuid, by distinct id, and by the property ``email``, ignoring case.

    Unknown persons are left out later.
    """

    person_ids: list[str] = field(default_factory=list)
    distinct_ids: list[str] = field(default_factory=list)
    emails: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if len(self.person_ids) + len(self.distinct_ids) + len(self.emails) > MAX_PERSONS:
            raise validation_error(f"At most {MAX_PERSONS:,} persons can be added with one request.")

    @classmethod
    def of(cls, person_ids: Iterable[UUID | str] = (), distinct_ids: Iterable[str] = ()) -> Members:
        """Return the persons that lists of ids name. Raises 400 for a person id that is not a UUID."""
        return cls([_uuid(person_id) for person_id in person_ids], list(distinct_ids))


def _uuid(value: UUID | str) -> str:
    known = str(value) if isinstance(value, UUID) else parse_uuid(value)
    if known is None:
        raise validation_error(f"{str(value)[:100]} is not the UUID of a person", "person_ids")
    return known


def read_csv(data: bytes) -> Members:
    """Return the persons of an uploaded file.

    The file is UTF-8 with a column ``person_id``, ``distinct_id`` or ``email``; the first of these that it has
    counts. Case and punctuation of a header do not matter: PostHog exports ``Person .id``. Columns are parted by
    one of `DELIMITERS`.

    A file of a single column needs no header: its values are distinct ids. Raises 400.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _csv_error("The file is not UTF-8 text.") from None
    has_columns = False
    for delimiter in DELIMITERS:
        rows = _rows(text, delimiter)
        if not rows:
            raise _csv_error("The file is empty.")
        header = [_column_name(cell) for cell in rows[0]]
        if (column := _place(header, PERSON_COLUMNS)) is not None:
            return Members.of(person_ids=_column(rows[1:], column))
        if (column := _place(header, DISTINCT_ID_COLUMNS)) is not None:
            return Members.of(distinct_ids=_column(rows[1:], column))
        if (column := _place(header, EMAIL_COLUMNS)) is not None:
            return Members(emails=_column(rows[1:], column))
        has_columns = has_columns or (len(header) > 1 and all(len(row) == len(header) for row in rows))
    rows = _rows(text, DELIMITERS[0])
    if has_columns or len(rows[0]) > 1:
        raise _csv_error("The file has several columns, but none is called person_id, distinct_id or email.")
    return Members.of(distinct_ids=_column(rows, 0))


def _rows(text: str, delimiter: str) -> list[list[str]]:
    """Return the rows of a file that are not blank. Raises 400."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        return [row for row in reader if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise _csv_error(f"The file is not valid CSV: {error}.") from None


def _column_name(cell: str) -> str:
    """Return a header in lower case, with underscores for everything between its words."""
    return "_".join("".join(char if char.isalnum() else " " for char in cell.lower()).split())


def _place(header: list[str], names: frozenset[str]) -> int | None:
    return next((place for place, name in enumerate(header) if name in names), None)


def _column(rows: Iterable[list[str]], place: int) -> list[str]:
    return [row[place].strip() for row in rows if len(row) > place and row[place].strip()]


def _csv_error(detail: str) -> Exception:
    return validation_error(detail, "csv")
