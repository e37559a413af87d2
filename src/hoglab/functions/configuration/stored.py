"""Conversions between a configuration and its row, and from a row to the API's object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from uuid_utils import uuid7

from hoglab.functions.configuration.builder import unknown_keys_of
from hoglab.functions.configuration.compiler_version import COMPILER_VERSION
from hoglab.functions.configuration.inputs import Inputs, shown_inputs
from hoglab.functions.configuration.model import Configuration, MappingConfiguration, mapping_labels
from hoglab.functions.status import Status
from hoglab.http.fields.unknown_keys import warnings_of, with_warnings
from hoglab.http.fields.wire import user_object

if TYPE_CHECKING:
    from datetime import datetime

    from hoglab.functions.secrets import SecretBox
    from hoglab.http.identity import User

Row = Mapping[str, Any]


def read_configuration(row: Row, box: SecretBox) -> Configuration:
    """Return the configuration in a row, with its secrets. Raises `SecretsError`."""
    secrets = box.unseal(row["encrypted_inputs"])
    stored_mappings: list[Row] | None = row["mappings"]
    mappings = None
    if stored_mappings is not None:
        labels = mapping_labels([mapping.get("name") for mapping in stored_mappings])
        mappings = [
            MappingConfiguration.of_stored(mapping, place, secrets.mappings.get(label, {}))
            for place, (mapping, label) in enumerate(zip(stored_mappings, labels, strict=True))
        ]
    return Configuration(
        type=row["type"],
        name=row["name"],
        description=row["description"],
        enabled=row["enabled"],
        deleted=row["deleted"],
        hog=row["hog"],
        bytecode=row["bytecode"],
        transpiled=row["transpiled"],
        inputs_schema=row["inputs_schema"],
        inputs=Inputs(row["inputs"], dict(secrets.inputs)),
        filters=row["filters"],
        masking=row["masking"],
        mappings=mappings,
        icon_url=row["icon_url"],
        template_id=row["template_id"],
        template=row["template"],
        execution_order=row["execution_order"],
        create_in_folder=row["create_in_folder"],
        x_tests=row["x_tests"] or (),
        x_delivery=row["x_delivery"],
    )


def row_values(configuration: Configuration, box: SecretBox) -> dict[str, Any]:
    """Return the columns that hold a configuration."""
    mappings = configuration.mappings
    return {
        "type": configuration.type,
        "name": configuration.name,
        "description": configuration.description,
        "enabled": configuration.enabled,
        "deleted": configuration.deleted,
        "hog": configuration.hog,
        "bytecode": configuration.bytecode,
        "transpiled": configuration.transpiled,
        "inputs_schema": list(configuration.inputs_schema),
        "inputs": dict(configuration.inputs.plain),
        "encrypted_inputs": box.seal(configuration.secrets),
        "filters": dict(configuration.filters),
        "masking": None if configuration.masking is None else dict(configuration.masking),
        "mappings": None if mappings is None else [mapping.stored() for mapping in mappings],
        "icon_url": configuration.icon_url,
        "template_id": configuration.template_id,
        "template": configuration.template,
        "execution_order": configuration.execution_order,
        "create_in_folder": configuration.create_in_folder,
        "x_tests": list(configuration.x_tests) or None,
        "x_delivery": configuration.x_delivery,
    }


def new_row(
    configuration: Configuration, box: SecretBox, *, project_id: int, user_id: int | None, now: datetime
) -> dict[str, Any]:
    """Return the whole row of a new function; ``user_id`` None means that the server itself makes it."""
    return {
        "id": str(uuid7()),
        "project_id": project_id,
        **row_values(configuration, box),
        "version": 1,
        "compiler_version": COMPILER_VERSION,
        "created_by_id": user_id,
        "created_at": now,
        "updated_at": now,
    }


SCOPE = "HogFunction"
"""Scope of functions in the activity log."""


def activity_detail(row: Row, changes: list[dict[str, Any]] | None) -> dict[str, Any]:
    """Return the ``detail`` of an entry of the activity log (spec: hog-functions-api 22)."""
    return {
        "name": row["name"],
        "type": (row["type"] or "destination").replace("_", " "),
        "changes": changes,
        "short_id": None,
        "trigger": None,
    }


def summary(row: Row, author: User | None, status: Status) -> dict[str, Any]:
    """Return the fourteen fields of a list item (spec: hog-functions-api 3.2)."""
    return {
        "id": row["id"],
        "type": row["type"],
        "name": row["name"],
        "description": row["description"],
        "created_at": row["created_at"],
        "created_by": user_object(author),
        "updated_at": row["updated_at"],
        "enabled": row["enabled"],
        "hog": row["hog"],
        "filters": row["filters"],
        "icon_url": row["icon_url"],
        "template": row["template"],
        "status": dict(status),
        "execution_order": row["execution_order"],
    }


def full_form(
    row: Row, configuration: Configuration, author: User | None, status: Status, draft: Row | None
) -> dict[str, Any]:
    """Return the whole object, its keys in the order of the examples (spec: hog-functions-api 3.1)."""
    mappings = configuration.mappings
    shown = {
        "id": row["id"],
        "type": row["type"],
        "name": row["name"],
        "description": row["description"],
        "created_at": row["created_at"],
        "created_by": user_object(author),
        "updated_at": row["updated_at"],
        "enabled": row["enabled"],
        "deleted": row["deleted"],
        "hog": row["hog"],
        "bytecode": row["bytecode"],
        "transpiled": row["transpiled"],
        "inputs_schema": row["inputs_schema"],
        "inputs": shown_inputs(row["inputs_schema"], configuration.inputs, every_key=True),
        "filters": row["filters"],
        "masking": row["masking"],
        "mappings": None if mappings is None else [mapping.shown() for mapping in mappings],
        "icon_url": row["icon_url"],
        "template": row["template"],
        "template_id": row["template_id"],
        "status": dict(status),
        "execution_order": row["execution_order"],
        "_create_in_folder": row["create_in_folder"],
        "batch_export_id": None,
        "version": row["version"],
        "draft": None if draft is None else draft["content"],
        "draft_updated_at": None if draft is None else draft["created_at"],
        **({"x_tests": list(configuration.x_tests)} if configuration.x_tests else {}),
        **({"x_delivery": configuration.x_delivery} if configuration.x_delivery else {}),
    }
    return with_warnings(shown, warnings_of(unknown_keys_of(configuration)))


DERIVED = frozenset({"bytecode", "bytecode_error", "transpiled", "order"})


def plain_inputs(items: Mapping[str, Any]) -> dict[str, Any]:
    """Return inputs without their compiled parts."""
    return {
        key: {name: part for name, part in item.items() if name not in DERIVED} for key, item in items.items()
    }


def live_config(configuration: Configuration) -> dict[str, Any]:
    """Return the settings that decide a function's behaviour, for comparison and history.

    Compiled parts and secrets are left out.
    """
    derived = DERIVED - {"order"}
    return {
        "hog": configuration.hog,
        "inputs_schema": list(configuration.inputs_schema),
        "inputs": plain_inputs(configuration.inputs.plain),
        "filters": _without(configuration.filters, derived),
        "masking": None if configuration.masking is None else _without(configuration.masking, derived),
        "mappings": None
        if configuration.mappings is None
        else [_plain_mapping(mapping, derived) for mapping in configuration.mappings],
        **({"x_delivery": configuration.x_delivery} if configuration.x_delivery else {}),
    }


def secret_values(configuration: Configuration) -> dict[str, Any]:
    """Return the secret values by where they belong, for comparison only."""
    values = {("", key): item["value"] for key, item in configuration.inputs.secret.items()}
    for label, mapping in configuration.labelled_mappings():
        values |= {(label, key): item["value"] for key, item in mapping.inputs.secret.items()}
    return {f"{label}\0{key}": value for (label, key), value in values.items()}


def _without(part: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in part.items() if name not in names}


def _plain_mapping(mapping: MappingConfiguration, derived: frozenset[str]) -> dict[str, Any]:
    shown = mapping.shown()
    if "inputs" in shown:
        shown["inputs"] = plain_inputs(mapping.inputs.plain)
    if shown.get("filters"):
        shown["filters"] = _without(shown["filters"], derived)
    return shown
