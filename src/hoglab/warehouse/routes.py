"""``/warehouse_tables`` of the management API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from hoglab.accounts import store as accounts
from hoglab.http.fields.wire import user_object
from hoglab.http.identity import Level
from hoglab.http.management import access
from hoglab.http.management.pagination import Paged, envelope
from hoglab.http.management.routing import ResourceRouter, UuidId
from hoglab.storage.table_files import ColumnType
from hoglab.warehouse import store
from hoglab.warehouse.schemas import TableIn, TableListQuery, TableOut, TablePatch

if TYPE_CHECKING:
    from hoglab.http.management.call import Call
    from hoglab.warehouse.service import WarehouseService
    from hoglab.warehouse.store import TableRow

SCOPES = ("warehouse_table:read", "warehouse_table:write")


def warehouse_router(service: WarehouseService) -> ResourceRouter:
    """Return the endpoints of warehouse tables. Only admins may change them."""
    routes = ResourceRouter("/warehouse_tables", tag="warehouse_tables", scopes=SCOPES)

    def objects(rows: Sequence[TableRow]) -> list[dict[str, Any]]:
        with service.database.read() as connection:
            users = accounts.users(connection, {row.created_by_id for row in rows})
        return [table_object(row, user_object(users.get(row.created_by_id or 0))) for row in rows]

    @routes.get("/", query=TableListQuery, response=Paged[TableOut])
    def list_tables(call: Call) -> dict[str, Any]:
        """List the warehouse tables, newest first."""
        page = call.page()
        with service.database.read() as connection:
            rows, count = store.list_tables(
                connection,
                call.project.id,
                search=(call.query("search") or "").strip() or None,
                limit=page.limit,
                offset=page.offset,
            )
        return envelope(call, objects(rows), count, page)

    @routes.post("/", body=TableIn, response=TableOut, status=201, heavy=True)
    def create_table(call: Call) -> dict[str, Any]:
        """Register files of the server as a table.

        Needs an admin. The files belong to no project: any project of the server may register them.
        """
        access.check_level(call.principal, Level.ADMIN)
        body = call.validate(TableIn)
        row = service.add(
            call.project.id,
            call.principal.user.id,
            name=body.name,
            url_pattern=body.url_pattern,
            format_=body.format,
        )
        return objects([row])[0]

    @routes.get("/{table_id}", response=TableOut)
    def read_table(call: Call, table_id: UuidId) -> dict[str, Any]:
        """Read a table."""
        with service.database.read() as connection:
            row = service.get(connection, call.project.id, table_id)
        return objects([row])[0]

    @routes.patch("/{table_id}", body=TablePatch, response=TableOut, heavy=True)
    def update_table(call: Call, table_id: UuidId) -> dict[str, Any]:
        """Change the files of a table. Needs an admin."""
        access.check_level(call.principal, Level.ADMIN)
        return objects([service.change(call.project.id, table_id, call.validate(TablePatch).sent())])[0]

    @routes.post("/{table_id}/refresh_schema", response=TableOut, heavy=True)
    def refresh_schema(call: Call, table_id: UuidId) -> dict[str, Any]:
        """Read the files of a table again, after their columns have changed. Needs an admin."""
        access.check_level(call.principal, Level.ADMIN)
        return objects([service.change(call.project.id, table_id, {})])[0]

    @routes.delete("/{table_id}", status=204)
    def delete_table(call: Call, table_id: UuidId) -> Response:
        """Delete a table; its files stay. Needs an admin."""
        access.check_level(call.principal, Level.ADMIN)
        service.remove(call.project.id, table_id)
        return Response(status_code=204)

    return routes


def table_object(row: TableRow, created_by: dict[str, Any] | None) -> dict[str, Any]:
    """Return a table in full."""
    return {
        "id": row.id,
        "deleted": False,
        "name": row.name,
        "format": row.format,
        "created_by": created_by,
        "created_at": row.created_at,
        "url_pattern": row.url_pattern,
        "credential": None,
        "columns": [
            {"key": name, "name": name, "type": kind, "schema_valid": kind != ColumnType.UNKNOWN}
            for name, kind in row.columns
        ],
        "external_data_source": None,
        "external_schema": None,
    }
