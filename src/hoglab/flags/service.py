"""The rules of feature flags (spec: experiments-api 4.1 to 4.6, 7.3)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any

import orjson

from hoglab.accounts import activity
from hoglab.flags import store
from hoglab.flags.dependencies import check_dependencies, check_dependents, check_enabled
from hoglab.flags.payloads import protect
from hoglab.flags.store import (
    ExperimentLinks,
    FlagChange,
    FlagRow,
    LinkedExperiment,
    no_experiments,
    nobody_is_told,
)
from hoglab.flags.validation import changed_filters, check_cohorts, check_key, new_filters, variant_keys
from hoglab.http.errors import not_found, required, validation_error
from hoglab.http.fields.dates import utc_now
from hoglab.people import cohorts

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from hoglab.http.identity import Project, User
    from hoglab.http.management.cipher import Cipher
    from hoglab.storage.database import Database, Transaction

MAX_FLAGS_PER_PROJECT = 2_000

MAX_FILTERS_PER_PROJECT = 64 * 2**20
"""Maximum length of the filters of all flags of a project together, as JSON: every process has them in memory."""

SCOPE = "FeatureFlag"
"""Scope of flags in the activity log."""

_FIELDS = frozenset(
    {
        "key",
        "name",
        "filters",
        "active",
        "archived",
        "deleted",
        "tags",
        "evaluation_contexts",
        "ensure_experience_continuity",
        "is_remote_configuration",
        "has_encrypted_payloads",
        "evaluation_runtime",
        "bucketing_identifier",
        "creation_context",
    }
)
_UNLOGGED = frozenset({"version", "updated_at", "last_modified_by_id", "last_called_at"})

_COLUMNS = tuple(field.name for field in fields(FlagRow))

_DEFAULTS: Mapping[str, Any] = {
    "name": "",
    "filters": {},
    "active": True,
    "archived": False,
    "deleted": False,
    "tags": [],
    "evaluation_contexts": [],
    "ensure_experience_continuity": False,
    "is_remote_configuration": False,
    "has_encrypted_payloads": False,
    "evaluation_runtime": "all",
    "bucketing_identifier": None,
    "creation_context": None,
}


class FlagService:
    """Feature flags of all projects.

    Methods that take a transaction are for callers who change other things along with a flag; their changes are
    undone with that transaction. Broken rules are raised as 400 of the wire.
    """

    def __init__(
        self,
        database: Database,
        *,
        experiments: ExperimentLinks = no_experiments,
        on_change: FlagChange = nobody_is_told,
        cipher: Cipher | None = None,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._database = database
        self._experiments = experiments
        self._on_change = on_change
        self.cipher = cipher
        self._now = now

    # Reading

    def get(self, connection: Connection, project_id: int, flag_id: int) -> FlagRow | None:
        """Return a flag, deleted or not."""
        return store.flag_by_id(connection, project_id, flag_id)

    def get_by_key(self, connection: Connection, project_id: int, key: str) -> FlagRow | None:
        """Return the flag with a key; None when there is none or it is deleted."""
        row = store.flag_by_key(connection, project_id, key)
        return None if row is None or row.deleted else row

    def linked(
        self, connection: Connection, project_id: int, flag_ids: Collection[int] | None
    ) -> Mapping[int, list[LinkedExperiment]]:
        """Return the experiments of some flags, or of all when ``flag_ids`` is None."""
        return self._experiments(connection, project_id, flag_ids)

    def unsaved(self, connection: Connection, project_id: int, data: Mapping[str, Any]) -> FlagRow:
        """Return a flag as it would be with these wire fields, without saving it.

        ``id`` names the flag that they change; without it they are those of a new one, whose id is 0 here. Raises 404,
        and 400 for a key, filters or dependencies that could not be saved.
        """
        flag_id = data.get("id")
        changes = _known(data)
        if flag_id is None:
            stored, before = None, {}
            values: dict[str, Any] = {**dict.fromkeys(_COLUMNS), **_DEFAULTS, **changes, "version": 0}
            values |= {"id": 0, "project_id": project_id}
            filters = new_filters(values["filters"], self._cohorts(connection, project_id))
        else:
            stored = self._existing(connection, project_id, flag_id)
            if stored.deleted:
                raise not_found()
            before = stored.filters
            values = {**asdict(stored), **changes}
            filters = changed_filters(
                before, changes.get("filters", {}), self._cohorts(connection, project_id)
            )
        if not isinstance(values["key"], str):
            raise required("key")
        check_key(values["key"])
        values["filters"] = check_dependencies(
            filters, flag_id, values["key"], lambda: store.flag_rows(connection, project_id), before
        )
        return FlagRow(**values)

    # Creating

    def create(self, project: Project, user: User | None, data: Mapping[str, Any]) -> FlagRow:
        """Make a flag in a transaction of its own."""
        with self._database.write() as tx:
            return self.create_flag(tx, project, user, data)

    def create_flag(
        self, tx: Transaction, project: Project, user: User | None, data: Mapping[str, Any]
    ) -> FlagRow:
        """Make a flag. ``data`` holds wire fields by name; ``key`` and ``filters`` with conditions are needed."""
        values = {**_DEFAULTS, **_known(data)}
        key = values.get("key")
        if not isinstance(key, str):
            raise required("key")
        holder = store.flag_by_key(tx.connection, project.id, key)
        if holder is not None and not holder.deleted:
            raise validation_error("There is already a feature flag with this key.", "key", "unique")
        check_key(key)
        filters = new_filters(values["filters"], self._cohorts(tx.connection, project.id))
        filters = check_dependencies(filters, None, key, lambda: store.flag_rows(tx.connection, project.id))
        values["filters"] = protect(filters, self.cipher, encrypted=bool(values["has_encrypted_payloads"]))
        _check_combination(values, values)
        _check_room(tx.connection, project.id, None, values["filters"])
        if store.count_flags(tx.connection, project.id) >= MAX_FLAGS_PER_PROJECT:
            raise validation_error(
                f"Maximum of {MAX_FLAGS_PER_PROJECT:,} feature flags allowed per team. "
                "Delete flags that are no longer used."
            )
        if holder is not None:
            self._free_key(tx, holder)
        now = self._now()
        user_id = None if user is None else user.id
        row = store.insert_flag(
            tx.connection,
            {
                **values,
                "project_id": project.id,
                "version": 1,
                "created_by_id": user_id,
                "last_modified_by_id": user_id,
                "created_at": now,
                "updated_at": now,
            },
        )
        activity.record(tx, project.id, user_id, "created", SCOPE, row.id, {"name": row.key}, now=now)
        tx.changed("flags", project.id)
        return row

    def _free_key(self, tx: Transaction, holder: FlagRow) -> None:
        """Take the key from a deleted flag: remove the flag, or rename it while an experiment needs it."""
        linked = self._experiments(tx.connection, holder.project_id, [holder.id]).get(holder.id, [])
        live = [experiment.id for experiment in linked if not experiment.deleted]
        if live:
            raise validation_error(
                f"Cannot reuse key '{holder.key}': a soft-deleted flag with this key is still referenced by "
                f"active experiment(s) with ID(s): {', '.join(map(str, live))}. Please contact support."
            )
        if linked:
            store.update_flag(tx.connection, holder.id, {"key": _deleted_key(holder)})
        else:
            store.delete_flag(tx.connection, holder.id)

    # Changing

    def update(
        self,
        project: Project,
        user: User | None,
        flag_id: int,
        changes: Mapping[str, Any],
        check: Callable[[Connection, FlagRow], None] | None = None,
    ) -> FlagRow:
        """Change a flag in a transaction of its own. Raises 404.

        ``check`` is called inside it with the flag as it is now, and may raise.
        """
        with self._database.write() as tx:
            if check is not None:
                check(tx.connection, self._existing(tx.connection, project.id, flag_id))
            return self.update_flag(tx, project, user, flag_id, changes)

    def set_active(
        self, tx: Transaction, project: Project, user: User | None, flag_id: int, active: bool
    ) -> FlagRow:
        """Switch a flag on or off. Does nothing when the flag is so already."""
        row = self._existing(tx.connection, project.id, flag_id)
        if row.active == active:
            return row
        return self.update_flag(tx, project, user, flag_id, {"active": active})

    def update_flag(
        self,
        tx: Transaction,
        project: Project,
        user: User | None,
        flag_id: int,
        changes: Mapping[str, Any],
    ) -> FlagRow:
        """Change fields of a flag; its version grows by one, also when the values stay the same.

        ``filters`` are merged by top-level key. A deleted flag is reached only by ``deleted`` false (404
        otherwise), which restores it. Running experiments protect their variants, and the flag from deletion
        and from a new key; active flags that depend on the flag protect it, too.
        """
        row = self._existing(tx.connection, project.id, flag_id)
        changes = _known(changes)
        if row.deleted and changes.get("deleted", True):
            raise not_found()
        linked = self._experiments(tx.connection, project.id, [row.id]).get(row.id, [])
        values = self._new_values(tx.connection, row, changes, linked)
        now = self._now()
        user_id = None if user is None else user.id
        stamp = {"version": row.version + 1, "last_modified_by_id": user_id, "updated_at": now}
        changed = store.update_flag(tx.connection, row.id, {**values, **stamp})
        self._record(tx, row, changed, user_id, now)
        self._on_change(tx, row, changed, now)
        tx.changed("flags", project.id)
        return changed

    def _existing(self, connection: Connection, project_id: int, flag_id: int) -> FlagRow:
        row = store.flag_by_id(connection, project_id, flag_id)
        if row is None:
            raise not_found()
        return row

    def _new_values(
        self,
        connection: Connection,
        row: FlagRow,
        changes: Mapping[str, Any],
        linked: Sequence[LinkedExperiment],
    ) -> dict[str, Any]:
        values = {name: value for name, value in changes.items() if name != "creation_context"}

        def others() -> list[FlagRow]:
            return store.flag_rows(connection, row.project_id)

        if "filters" in values:
            values["filters"] = changed_filters(
                row.filters, values["filters"], self._cohorts(connection, row.project_id)
            )
            check_dependencies(values["filters"], row.id, values.get("key", row.key), others, row.filters)
            _protect_variants(row, values["filters"], linked)
        check_dependents(row, values, others)
        if _is_enabled(asdict(row) | values) and not _is_enabled(asdict(row)):
            check_enabled(values.get("filters", row.filters), others)
            check_cohorts(values.get("filters", row.filters), self._cohorts(connection, row.project_id))
        values |= self._sealed(row, values)
        if "filters" in values or (row.deleted and not values.get("deleted", True)):
            _check_room(connection, row.project_id, row.id, values.get("filters", row.filters))
        _check_combination({**asdict(row), **values}, changes)
        deleting = values.get("deleted", row.deleted)
        if deleting and not row.deleted:
            _protect_from_deletion(linked)
            if linked:
                values["key"] = _deleted_key(row)
        elif row.deleted:
            values["key"] = self._restored_key(connection, row, values.get("key"))
        elif values.get("key", row.key) != row.key:
            _protect_key(linked)
            self._check_new_key(connection, row, values["key"])
        return values

    def _sealed(self, row: FlagRow, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the filters with payloads as the flag will have them, encrypted or not; {} when nothing changes."""
        if "filters" not in values and "has_encrypted_payloads" not in values:
            return {}
        filters = protect(
            values.get("filters", row.filters),
            self.cipher,
            encrypted=bool(values.get("has_encrypted_payloads", row.has_encrypted_payloads)),
            stored=row.filters,
            was_encrypted=bool(row.has_encrypted_payloads),
        )
        return {"filters": filters}

    def _check_new_key(self, connection: Connection, row: FlagRow, key: str) -> None:
        holder = store.flag_by_key(connection, row.project_id, key)
        if holder is not None and holder.id != row.id:
            if not holder.deleted:
                raise validation_error("There is already a feature flag with this key.", "key", "unique")
            store.update_flag(connection, holder.id, {"key": _deleted_key(holder)})
        check_key(key)

    def _restored_key(self, connection: Connection, row: FlagRow, wanted: str | None) -> str:
        """Return the key of a restored flag: its own, or that with a number when it is taken."""
        key = wanted or row.key.removesuffix(_deleted_suffix(row))
        check_key(key)
        taken = store.keys_in_use(connection, row.project_id, key) - {row.key}
        number, free = 2, key
        while free in taken:
            free, number = f"{key}-{number}", number + 1
        return free

    def _cohorts(self, connection: Connection, project_id: int) -> Callable[[Collection[int]], set[int]]:
        return lambda wanted: cohorts.existing(connection, project_id, wanted)

    def _record(
        self, tx: Transaction, before: FlagRow, after: FlagRow, user_id: int | None, now: datetime
    ) -> None:
        """Log what changed; nothing when only the version did."""
        old, new = asdict(before), asdict(after)
        changes = [
            activity.change(SCOPE, name, old[name], new[name])
            for name in new
            if name not in _UNLOGGED and old[name] != new[name]
        ]
        if not changes:
            return
        name = "updated"
        if before.deleted != after.deleted:
            name = "deleted" if after.deleted else "restored"
        detail = {"name": after.key, "changes": changes}
        activity.record(tx, after.project_id, user_id, name, SCOPE, after.id, detail, now=now)


def _is_enabled(values: Mapping[str, Any]) -> bool:
    return bool(values["active"]) and not values["deleted"]


def _check_room(
    connection: Connection, project_id: int, flag_id: int | None, filters: Mapping[str, Any]
) -> None:
    """Raise 400 when the filters of a flag are too much beside those of the project's other flags."""
    others = store.size_of_filters(connection, project_id, but=flag_id)
    if others + len(orjson.dumps(filters)) > MAX_FILTERS_PER_PROJECT:
        raise validation_error(
            f"The filters of all feature flags of a project have at most {MAX_FILTERS_PER_PROJECT:,} characters "
            "together. Delete flags that are no longer used.",
            "filters",
        )


def _known(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name in _FIELDS}


def _check_combination(values: Mapping[str, Any], sent: Mapping[str, Any]) -> None:
    """Raise 400 for a combination of fields, with the values that they would have, that breaks a rule."""
    if values["archived"] and values["active"]:
        if sent.get("archived"):
            raise validation_error(
                "Cannot archive an enabled feature flag. Disable it first, or send active: false in the same "
                "request."
            )
        raise validation_error("Cannot enable an archived feature flag. Unarchive it first.")
    if values["bucketing_identifier"] == "device_id" and values["ensure_experience_continuity"]:
        raise validation_error(
            "Cannot enable 'persist across authentication steps' when using device ID bucketing. "
            "These features are incompatible."
        )


def _running(linked: Sequence[LinkedExperiment]) -> str | None:
    """Return the running experiments among some, as errors name them."""
    running = [experiment for experiment in linked if experiment.is_running and not experiment.deleted]
    return ", ".join(f'"{experiment.name}" (ID: {experiment.id})' for experiment in running) or None


def _protect_from_deletion(linked: Sequence[LinkedExperiment]) -> None:
    running = _running(linked)
    if running:
        raise validation_error(
            f"Cannot delete a feature flag that is linked to running experiment(s): {running}. "
            "Please stop the experiment(s) before deleting the flag."
        )


def _protect_key(linked: Sequence[LinkedExperiment]) -> None:
    """Raise 400 while an experiment runs: its exposures have the key, so that its results would begin at nothing."""
    running = _running(linked)
    if running:
        raise validation_error(
            f"Cannot change the key of a feature flag that is linked to running experiment(s): {running}. "
            "Please stop the experiment(s) before changing the key.",
            "key",
        )


def _protect_variants(row: FlagRow, filters: Mapping[str, Any], linked: Sequence[LinkedExperiment]) -> None:
    running = _running(linked)
    removed = [key for key in variant_keys(row.filters) if key not in variant_keys(filters)]
    if running and removed:
        names = ", ".join(f"'{key}'" for key in removed)
        raise validation_error(
            f"Cannot remove variant(s) {names} from a feature flag that is linked to running "
            f"experiment(s): {running}. Please stop the experiment(s) before removing variants.",
            "filters",
        )


def _deleted_suffix(row: FlagRow) -> str:
    return f":deleted:{row.id}"


def _deleted_key(row: FlagRow) -> str:
    suffix = _deleted_suffix(row)
    return row.key if row.key.endswith(suffix) else row.key + suffix
