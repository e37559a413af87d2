"""Warehouse tables on the wire."""

from datetime import datetime
from typing import Annotated

from pydantic import Field

from hoglab.http.fields.fields import Choice, Text, WireModel
from hoglab.http.fields.notes import Note, Notes
from hoglab.http.fields.wire import UserOut
from hoglab.storage.table_files import MAX_PATTERN, FileFormat
from hoglab.warehouse.service import MAX_NAME

_Format = Annotated[str, Choice(*FileFormat)]
_Pattern = Annotated[str, Text(max_length=MAX_PATTERN)]

NOTES: Notes = {
    "name": Note("Name in metrics (`table_name`): letters, digits, underscores and dots.", "orders"),
    "format": Note("Format of the files; default: by the extension of their names.", "Parquet"),
    "url_pattern": Note(
        "Pattern of file paths in the server's directory of tables; `*` stands for any part of a "
        "name. All projects of the server share these files.",
        "orders/*.parquet",
    ),
    "columns": "Columns of the table when it was registered or its schema was last refreshed.",
}


class TablePatch(WireModel):
    """New files of a table."""

    notes = NOTES

    name: Annotated[str, Text(max_length=MAX_NAME)] = Field("", description="Cannot be changed.")
    format: _Format | None = None
    url_pattern: _Pattern = ""


class TableIn(TablePatch):
    """A new table."""

    notes = NOTES

    name: Annotated[str, Text(max_length=MAX_NAME)] = Field(
        description="Name in metrics (`table_name`): letters, digits, underscores and dots."
    )
    url_pattern: _Pattern


class TableListQuery(WireModel):
    """Filters of the list of tables."""

    search: str | None = Field(None, description="A part of the name")
    limit: str | None = None
    offset: str | None = None


class ColumnOut(WireModel):
    """A column of a table."""

    key: str = Field(description="Name of the column in the files.", examples=["amount"])
    name: str = Field(description="Name of the column in the files, as in `key`.", examples=["amount"])
    type: str = Field(
        description="`integer`, `float`, `string`, `boolean`, `datetime`, `date`, or `unknown`: of no use to metrics.",
        examples=["float"],
    )
    schema_valid: bool = Field(description="Whether metrics can use it.", examples=[True])


class TableOut(WireModel):
    """A warehouse table."""

    notes = NOTES

    id: str
    deleted: bool = Field(description="Always false: a removed table is gone.")
    name: str
    format: str
    created_by: UserOut | None
    created_at: datetime
    url_pattern: str
    credential: None = Field(description="Always null: files are on the server itself.")
    columns: list[ColumnOut]
    external_data_source: None = Field(description="Always null: nothing is fetched from elsewhere.")
    external_schema: None = Field(description="Always null: nothing is fetched from elsewhere.")
