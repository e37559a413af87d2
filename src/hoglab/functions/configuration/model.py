"""Configuration of a function: what people decide, with its compiled forms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hoglab.functions.configuration.inputs import Inputs, shown_inputs
from hoglab.functions.secrets import Secrets
from hoglab.functions.site import SiteMappingParts, SiteParts


@dataclass(frozen=True, slots=True)
class MappingConfiguration:
    """One mapping.

    ``id`` identifies it to its runs and stays the same when it is moved or edited; ``given`` are the keys that the
    request had, which are the keys that are shown.
    """

    id: str = ""
    name: str | None = None
    disabled: bool = False
    inputs_schema: Sequence[Mapping[str, Any]] = ()
    inputs: Inputs = field(default_factory=Inputs)
    filters: Mapping[str, Any] | None = None
    given: frozenset[str] = frozenset()

    def shown(self) -> dict[str, Any]:
        """Return the mapping as the API shows it."""
        parts: dict[str, Any] = {
            "name": self.name,
            "disabled": self.disabled,
            "inputs_schema": list(self.inputs_schema),
            "inputs": shown_inputs(self.inputs_schema, self.inputs, every_key=False),
            "filters": self.filters,
        }
        return {name: value for name, value in parts.items() if name in self.given}

    def stored(self) -> dict[str, Any]:
        """Return the mapping as it is stored: without its secrets."""
        plain = {"inputs": dict(self.inputs.plain)} if self.inputs.plain else {}
        return {"id": self.id, **self.shown(), **plain}

    @classmethod
    def of_stored(
        cls, row: Mapping[str, Any], place: int, secrets: Mapping[str, Any]
    ) -> MappingConfiguration:
        """Return the mapping of a stored object.

        ``place`` is its number, the id of a mapping that was stored without one.
        """
        schema = row.get("inputs_schema") or []
        hidden = {entry["key"] for entry in schema if entry.get("secret")}
        plain = {key: item for key, item in (row.get("inputs") or {}).items() if key not in hidden}
        return cls(
            id=row.get("id") or str(place),
            name=row.get("name"),
            disabled=bool(row.get("disabled")),
            inputs_schema=schema,
            inputs=Inputs(plain, dict(secrets)),
            filters=row.get("filters"),
            given=frozenset(row) - {"id"},
        )


def mapping_labels(names: Sequence[str | None]) -> list[str]:
    """Return the labels under which mappings keep their secrets: a name, else the place, made unique by a number."""
    labels: list[str] = []
    for index, name in enumerate(names):
        label = wanted = name or str(index)
        number = 1
        while label in labels:
            number += 1
            label = f"{wanted}#{number}"
        labels.append(label)
    return labels


@dataclass(frozen=True, slots=True)
class Configuration:
    """Everything that people decide about a function, with its compiled forms."""

    type: str | None
    name: str | None
    description: str
    enabled: bool
    deleted: bool
    hog: str
    bytecode: list[Any] | None
    transpiled: str | None
    """JavaScript for browsers, for the types that run there."""
    inputs_schema: Sequence[Mapping[str, Any]]
    inputs: Inputs
    filters: Mapping[str, Any]
    masking: Mapping[str, Any] | None
    mappings: Sequence[MappingConfiguration] | None
    icon_url: str | None
    template_id: str | None
    template: Mapping[str, Any] | None
    execution_order: int | None
    create_in_folder: str | None
    x_tests: Sequence[Mapping[str, Any]] = ()
    """Test cases, run on every save."""
    x_delivery: Mapping[str, Any] | None = None
    """Delivery options; None for the defaults."""

    @property
    def active(self) -> bool:
        return self.enabled and not self.deleted

    def site_parts(self) -> SiteParts:
        """Return the parts of a site function, without its secrets."""
        mappings = [
            SiteMappingParts(mapping.inputs_schema, mapping.inputs.plain, mapping.filters)
            for mapping in self.mappings or ()
            if not mapping.disabled
        ]
        return SiteParts(self.hog, self.inputs_schema, self.inputs.plain, self.filters, mappings)

    @property
    def secrets(self) -> Secrets:
        mappings = {
            label: mapping.inputs.secret
            for label, mapping in self.labelled_mappings()
            if mapping.inputs.secret
        }
        return Secrets(self.inputs.secret, mappings)

    def labelled_mappings(self) -> list[tuple[str, MappingConfiguration]]:
        """Return the mappings with the labels under which their secrets are kept."""
        mappings = self.mappings or ()
        return list(zip(mapping_labels([mapping.name for mapping in mappings]), mappings, strict=True))
