"""Functions that every project begins with where a GeoIP database is configured (spec: hog-functions-api 4.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hoglab.accounts import activity
from hoglab.accounts import store as accounts
from hoglab.filters.hog import FilterContext
from hoglab.functions import store
from hoglab.functions.configuration import Builder, FunctionPatch
from hoglab.functions.configuration.stored import SCOPE, activity_detail, new_row
from hoglab.http.fields.dates import utc_now

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from hoglab.functions.secrets import SecretBox
    from hoglab.storage.database import Database

TEMPLATE = "template-geoip"
KIND = "transformation"


class GeoIpByDefault:
    """Gives each project the GeoIP transformation, once: a function that was deleted or switched off stays so.

    New projects get it before the request that creates them is answered, projects older than the GeoIP database
    when the server starts, and projects that a command creates when the server learns of them.
    """

    def __init__(self, database: Database, box: SecretBox, *, now: Callable[[], datetime] = utc_now) -> None:
        self._database = database
        self._box = box
        self._now = now
        self._unsubscribe: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Give it to all existing projects, and from now on to new ones."""
        self._unsubscribe = self._database.changes.subscribe("project", self.give)
        with self._database.read() as connection:
            projects = [project.id for project in accounts.projects(connection)]
        for project_id in projects:
            self.give(project_id)

    def stop(self, timeout_s: float = 0.0) -> None:  # noqa: ARG002 - as all background services
        self._unsubscribe()

    def give(self, project_id: int) -> bool:
        """Give it to a project. Return False for one that has it, or had it."""
        with self._database.read() as connection:
            if store.ever_of_template(connection, project_id, TEMPLATE):
                return False
        with self._database.write() as tx:
            if store.ever_of_template(tx.connection, project_id, TEMPLATE):
                return False
            first = store.first_order(tx.connection, project_id, KIND)
            body = {
                "type": KIND,
                "template_id": TEMPLATE,
                "enabled": True,
                "execution_order": 1 if first is None else max(0, first - 1),
            }
            built = Builder(FunctionPatch(body), None, FilterContext()).build()
            row = new_row(built, self._box, project_id=project_id, user_id=None, now=self._now())
            store.add(tx.connection, row)
            detail = activity_detail(row, None)
            activity.record(tx, project_id, None, "created", SCOPE, row["id"], detail, now=self._now())
            tx.changed("functions", project_id)
        return True
