"""From a request body to a complete, compiled configuration of a function.

One pipeline serves create, update and test runs. Checks run field by field, in the order in which the first
of several errors is to be reported (spec: hog-functions-api 4.1, 4.2, 23).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pydantic import ValidationError

from hoglab.actions.references import first_missing, references
from hoglab.functions.configuration import code
from hoglab.functions.configuration.delivery_policy import checked_delivery
from hoglab.functions.configuration.filtering import (
    TABLE_SOURCES,
    arrange_filters,
    bare_filters,
    checked_filters,
    compile_filters,
    without_events,
)
from hoglab.functions.configuration.inputs import Inputs, SentItem, build_inputs
from hoglab.functions.configuration.mapping_identity import counterparts
from hoglab.functions.configuration.model import Configuration, MappingConfiguration
from hoglab.functions.configuration.schemas import FunctionBody, InputItem, InputSchemaItem
from hoglab.functions.configuration.schemas import Mapping as MappingBody
from hoglab.functions.environments import template_environment
from hoglab.functions.errors import InvalidFunctionError, Path
from hoglab.functions.site import SITE_TYPES
from hoglab.functions.templates import UNUSABLE, Template, find_template
from hoglab.functions.templating import TemplateDialect, TemplateError, compile_value
from hoglab.hog import closest
from hoglab.http.fields.unknown_keys import (
    UNKNOWN_FIELD,
    UnknownKey,
    WarningEntry,
    first_refused,
    hint,
    warning,
    within,
)

if TYPE_CHECKING:
    from hoglab.filters.hog import FilterContext
    from hoglab.functions.configuration.schemas import Masking, StoredTest

WITH_MAPPINGS = frozenset({"destination", "site_destination"})
ORDERED_TYPES = frozenset({"transformation", "transformation_log"})

TESTED_TYPES = frozenset({"destination", "internal_destination", "transformation"})
"""The types that can be tested on an event."""

MAX_TESTS = 50
"""Maximum number of test cases of a function."""

COPIED_FROM_TEMPLATE = ("hog", "inputs_schema", "icon_url", "description", "name")

_INPUTS_DEPEND_ON = ("inputs_schema", "filters")
"""What inputs are compiled with: their schema, and the source of events, which decides what templates may read."""

REPAIRED = ("integration", "integration_key", "integration_field", "requires_field", "requiredScopes")
"""Attributes of a schema entry that older editors omit when they send it back."""


@dataclass(frozen=True)
class FunctionPatch:
    """A request body, read field by field. A field is absent when it was not sent."""

    body: Mapping[str, Any]

    def has(self, name: str) -> bool:
        """Return whether a field was sent."""
        return _wire_name(name) in self.body

    def read(self, name: str) -> Any:
        """Return the checked value of a field, or its default. Raises `InvalidFunctionError`."""
        if self._valid is not None:
            return getattr(self._valid, name)
        wire = _wire_name(name)
        try:
            return getattr(
                FunctionBody.model_validate({wire: self.body[wire]} if self.has(name) else {}), name
            )
        except ValidationError as error:
            raise InvalidFunctionError.from_pydantic(error) from None

    @cached_property
    def _valid(self) -> FunctionBody | None:
        """The whole body, or None: where a field is wrong, each is read alone, so that the first that is read tells."""
        try:
            return FunctionBody.model_validate(dict(self.body))
        except ValidationError:
            return None


def _wire_name(name: str) -> str:
    return FunctionBody.model_fields[name].alias or name


@dataclass(frozen=True, slots=True)
class Builder:
    """Builds one configuration. ``current`` is the stored one, None for a new function."""

    sent: FunctionPatch
    current: Configuration | None
    context: FilterContext

    def build(self) -> Configuration:
        """Return the configuration. Raises `InvalidFunctionError` for the first error."""
        template = None if self.current is not None else self._template()
        sent = self if template is None else Builder(_completed(self.sent, template), None, self.context)
        built = sent._configuration(template)  # noqa: SLF001 - the same class
        stored = () if self.current is None else unknown_keys_of(self.current)
        unknown = first_refused(within(FunctionBody, self.sent.body), stored)
        if unknown is not None:
            raise InvalidFunctionError(unknown.detail, *unknown.path, code=UNKNOWN_FIELD)
        self._check_references()
        return built

    def _check_references(self) -> None:
        """Raise `InvalidFunctionError` for actions and cohorts that the project does not have."""
        sent = {name: self.sent.body[name] for name in ("filters", "mappings") if name in self.sent.body}
        stored = [] if self.current is None else [self.current.filters, *self._stored_mapping_filters()]
        context = self.context
        missing = first_missing(references(sent), references(stored), context.actions, context.cohorts)
        if missing is not None:
            refused = missing.error()
            raise InvalidFunctionError(refused.detail, *missing.path, code=refused.code)

    def _stored_mapping_filters(self) -> list[Mapping[str, Any] | None]:
        return [] if self.current is None else [mapping.filters for mapping in self.current.mappings or ()]

    def _template(self) -> Template | None:
        template_id = self.sent.read("template_id") if self.sent.has("template_id") else None
        if template_id is None:
            return None
        template = find_template(template_id)
        if template is None:
            raise InvalidFunctionError(f"No template found for id '{template_id}'", "template_id")
        if template.status in UNUSABLE:
            raise InvalidFunctionError(
                f"Template '{template_id}' is internal and cannot be used to create a function.",
                "template_id",
            )
        return template

    def _configuration(self, template: Template | None) -> Configuration:
        current = self.current
        kind = self._type()
        name = self._value("name")
        description = self._value("description")
        enabled = self._value("enabled")
        deleted = self._value("deleted")
        active = enabled and not deleted
        hog = self._value("hog")
        schema = self._schema()
        dialect = _dialect(kind, self._source())
        inputs = self._inputs(schema, dialect)
        has_mappings = self._has_mappings()
        filters = self._filters(kind, has_mappings=has_mappings, active=active)
        masking = self._masking()
        mappings = self._mappings(kind, dialect, active=active)
        icon_url = self._value("icon_url")
        execution_order = self._value("execution_order")
        folder = self._value("create_in_folder")
        if mappings is not None and (kind or "destination") not in WITH_MAPPINGS:
            raise InvalidFunctionError("Mappings are only allowed for destinations.", "mappings")
        built = Configuration(
            type=kind,
            name=name,
            description=description,
            enabled=enabled,
            deleted=deleted,
            hog=hog,
            bytecode=self._bytecode(hog, kind, template.code if template else ""),
            transpiled=None,
            inputs_schema=schema,
            inputs=inputs,
            filters=filters,
            masking=masking,
            mappings=mappings,
            icon_url=icon_url,
            template_id=current.template_id if current else template.id if template else None,
            template=current.template if current else template.wire() if template else None,
            execution_order=execution_order,
            create_in_folder=folder,
            x_tests=self._tests(kind),
            x_delivery=self._delivery(kind),
        )
        if kind not in SITE_TYPES:
            return built
        return replace(built, transpiled=built.site_parts().transpile(self.context))

    def _value(self, name: str) -> Any:
        """Return a field as sent, else as stored, else its default."""
        stored = self._keeping(name)
        return self.sent.read(name) if stored is None else getattr(stored, name)

    def _keeping(self, *names: str) -> Configuration | None:
        """Return the stored configuration if fields stay as they are there, None if the request sends any of them."""
        return None if any(map(self.sent.has, names)) else self.current

    def _type(self) -> str | None:
        kind: str | None = self._value("type")
        if self.current is not None:
            if (kind or "destination") != (self.current.type or "destination"):
                raise InvalidFunctionError("Cannot modify the type of an existing function", "type")
            return self.current.type
        match kind:
            case "warehouse_source_webhook":
                raise InvalidFunctionError(
                    "Cannot create or modify warehouse source webhook functions via this API.", "type"
                )
            case "transformation_log":
                raise InvalidFunctionError("Log transformations are not enabled for this team.", "type")
        return kind

    # --- inputs ---

    def _schema(self) -> Sequence[Mapping[str, Any]]:
        if (stored := self._keeping("inputs_schema")) is not None:
            return stored.inputs_schema
        sent: list[InputSchemaItem] = self.sent.read("inputs_schema")
        return _repaired([entry.stored() for entry in sent], self._known_schema())

    def _known_schema(self) -> Sequence[Mapping[str, Any]]:
        if self.current is None:
            return ()
        if self.current.inputs_schema or not self.current.template:
            return self.current.inputs_schema
        schema: Sequence[Mapping[str, Any]] = self.current.template["inputs_schema"]
        return schema

    def _inputs(self, schema: Sequence[Mapping[str, Any]], dialect: TemplateDialect) -> Inputs:
        if (current := self._keeping("inputs", *_INPUTS_DEPEND_ON)) is not None:
            return current.inputs
        stored = Inputs() if self.current is None else self.current.inputs
        is_kept = self._keeping("inputs") is not None
        sent = _as_sent(stored, schema) if is_kept else _sent_items(self.sent.read("inputs"))
        return build_inputs(schema, sent, stored, dialect)

    # --- filters, masking, mappings ---

    def _source(self) -> str:
        """Return the filters' source, which decides what templates may read; wrong filters are reported later."""
        sent = self.sent.body.get("filters")
        if isinstance(sent, Mapping):
            return str(sent.get("source"))
        return "events" if self.current is None else str(self.current.filters.get("source"))

    def _has_mappings(self) -> bool:
        if self.sent.has("mappings"):
            sent = self.sent.body["mappings"]
            return sent is not None and (bool(sent) or self.current is not None)
        return self.current is not None and self.current.mappings is not None

    def _filters(self, kind: str | None, *, has_mappings: bool, active: bool) -> Mapping[str, Any]:
        if (stored := self._keeping("filters")) is not None:
            filters = bare_filters(stored.filters)
        else:
            filters = arrange_filters(self.sent.read("filters"), kind)
        if has_mappings:
            filters = without_events(filters)
        return checked_filters(filters, self.context, active=active, browser=kind in SITE_TYPES)

    def _masking(self) -> Mapping[str, Any] | None:
        if (stored := self._keeping("masking")) is not None:
            return stored.masking
        masking: Masking | None = self.sent.read("masking")
        return None if masking is None else compiled_masking(masking.sent())

    def _mappings(
        self, kind: str | None, dialect: TemplateDialect, *, active: bool
    ) -> Sequence[MappingConfiguration] | None:
        if (stored := self._keeping("mappings")) is not None:
            return stored.mappings
        sent: list[MappingBody] | None = self.sent.read("mappings")
        if sent is None or (not sent and self.current is None):
            return None
        replaced = () if self.current is None else self.current.mappings or ()
        return [
            self._mapping(
                mapping, index, known or MappingConfiguration(str(uuid4())), kind, dialect, active=active
            )
            for index, (mapping, known) in enumerate(
                zip(sent, counterparts(sent, replaced, kind), strict=True)
            )
        ]

    def _mapping(
        self,
        sent: MappingBody,
        index: int,
        known: MappingConfiguration,
        kind: str | None,
        dialect: TemplateDialect,
        *,
        active: bool,
    ) -> MappingConfiguration:
        """Return a mapping that replaces ``known``, the stored one or an empty one.

        A mapping with another name does not keep the secrets of ``known``.
        """
        path: Path = ("mappings", index)
        given = {name for name, value in sent.sent().items() if value is not None}
        if "inputs" in given and "inputs_schema" not in given:
            raise InvalidFunctionError("Missing inputs_schema.", *path, "inputs")
        schema = _repaired([entry.stored() for entry in sent.inputs_schema or []], known.inputs_schema)
        inputs = build_inputs(
            schema,
            _sent_items(sent.inputs or {}),
            known.inputs if (sent.name or None) == (known.name or None) else Inputs(),
            dialect,
            (*path, "inputs"),
        )
        if inputs.plain or inputs.secret:
            given.add("inputs")
        filters = None
        if "filters" in given:
            arranged = arrange_filters(sent.filters, kind)
            filters = checked_filters(
                arranged,
                self.context,
                active=active,
                browser=dialect.browser,
                path=(*path, "filters"),
            )
        return MappingConfiguration(
            known.id, sent.name, sent.disabled, schema, inputs, filters, frozenset(given)
        )

    # --- code ---

    def _tests(self, kind: str | None) -> Sequence[Mapping[str, Any]]:
        if (stored := self._keeping("x_tests")) is not None:
            return stored.x_tests
        sent: list[StoredTest] = self.sent.read("x_tests") or []
        if sent and (kind or "destination") not in TESTED_TYPES:
            raise InvalidFunctionError("Functions of this type cannot have test cases.", "x_tests")
        if len(sent) > MAX_TESTS:
            raise InvalidFunctionError(f"A function may have {MAX_TESTS} test cases.", "x_tests")
        return [case.model_dump(exclude_unset=True) for case in sent]

    def _delivery(self, kind: str | None) -> Mapping[str, Any] | None:
        if (stored := self._keeping("x_delivery")) is not None:
            return stored.x_delivery
        return checked_delivery(self.sent.read("x_delivery"), kind)

    def _bytecode(self, hog: str, kind: str | None, template_code: str) -> list[Any] | None:
        if (stored := self._keeping("hog")) is not None:
            return stored.bytecode
        if self.current is not None:
            template_code = (self.current.template or {}).get("code") or ""
        code.check_size(hog)
        if not hog:
            raise InvalidFunctionError("Required.", "hog")
        if kind in SITE_TYPES:
            return None
        bytecode = code.compile_code(hog, kind)
        code.check_reserved(hog, template_code)
        return bytecode


def unknown_keys_of(stored: Configuration) -> Iterator[UnknownKey]:
    """Return the keys inside of a stored configuration that have no effect.

    Only known keys of the other fields are stored.
    """
    mappings = [{"filters": mapping.filters} for mapping in stored.mappings or ()]
    return within(FunctionBody, {"filters": stored.filters, "mappings": mappings})


def unknown_inputs(sent: Mapping[str, Any], shown: Mapping[str, Any]) -> list[WarningEntry]:
    """Return warnings for inputs of a request that the function does not ask for (spec: hog-functions-api 5.2).

    ``shown`` is the function as answers show it.
    """
    warnings = _unasked(sent, shown, ())
    mappings = sent.get("mappings")
    if isinstance(mappings, list):
        for index, (mapping, kept) in enumerate(zip(mappings, shown["mappings"] or (), strict=False)):
            warnings += _unasked(mapping, kept, ("mappings", index))
    return warnings


def _unasked(sent: Mapping[str, Any], shown: Mapping[str, Any], path: Path) -> list[WarningEntry]:
    asked = [entry["key"] for entry in shown.get("inputs_schema") or ()]
    return [
        warning(
            "unknown_input",
            (*path, "inputs", key),
            f"The function asks for no input {key} and does not keep it{hint(closest(key, asked))}",
        )
        for key, item in (sent.get("inputs") or {}).items()
        if key not in asked and item is not None
    ]


def recompiled(current: Configuration, context: FilterContext, *, programs: bool) -> Configuration:
    """Return the same configuration compiled again.

    Filters, which depend on ``context``, and JavaScript for browsers are compiled; with ``programs``, code, inputs
    and masking too. Nothing is checked that was checked when it was saved.

    Filters that can no longer be compiled say so. Raises `InvalidFunctionError` for programs that cannot be
    compiled.
    """
    kind, browser = current.type, current.type in SITE_TYPES

    def filters(stored: Mapping[str, Any]) -> Mapping[str, Any]:
        return compile_filters(stored, context, browser=browser)

    built = replace(
        current,
        filters=filters(current.filters),
        mappings=None
        if current.mappings is None
        else [
            replace(mapping, filters=mapping.filters and filters(mapping.filters))
            for mapping in current.mappings
        ],
    )
    if programs:
        dialect = _dialect(kind, str(current.filters.get("source")))

        def inputs(schema: Sequence[Mapping[str, Any]], stored: Inputs) -> Inputs:
            return build_inputs(schema, _as_sent(stored, schema), stored, dialect)

        built = replace(
            built,
            bytecode=None if browser else code.compile_code(current.hog, kind),
            inputs=inputs(current.inputs_schema, current.inputs),
            masking=current.masking and compiled_masking(current.masking),
            mappings=built.mappings
            and [
                replace(mapping, inputs=inputs(mapping.inputs_schema, mapping.inputs))
                for mapping in built.mappings
            ],
        )
    return replace(built, transpiled=built.site_parts().transpile(context)) if browser else built


def compiled_masking(masking: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the masking with the bytecode of its hash. Raises `InvalidFunctionError`."""
    try:
        compiled = compile_value(masking["hash"], TemplateDialect(template_environment(None)))
    except TemplateError as error:
        raise InvalidFunctionError(str(error), "masking", "hash") from None
    return {**masking, "bytecode": compiled.artefact}


def _completed(sent: FunctionPatch, template: Template) -> FunctionPatch:
    """Return the body with the fields that it lacks and its template has."""
    known = template.wire() | {"hog": template.code}
    copied = {name: known[name] for name in COPIED_FROM_TEMPLATE if not sent.body.get(name)}
    return FunctionPatch({**sent.body, **{name: value for name, value in copied.items() if value}})


def _dialect(kind: str | None, source: str) -> TemplateDialect:
    return TemplateDialect(
        template_environment(kind), record_is_event=source in TABLE_SOURCES, browser=kind in SITE_TYPES
    )


def _sent_items(inputs: Mapping[str, InputItem | None]) -> dict[str, SentItem]:
    """Return the items of a request; null, which answers show for an unset input, is left out."""
    return {key: SentItem.of(item) for key, item in inputs.items() if item is not None}


def _as_sent(stored: Inputs, schema: Sequence[Mapping[str, Any]]) -> dict[str, SentItem]:
    """Return stored plain inputs as if they were sent again; secret inputs are kept by not being sent."""
    secret = {entry["key"] for entry in schema if entry.get("secret")}
    return {key: SentItem.stored(item) for key, item in stored.plain.items() if key not in secret}


def _repaired(
    sent: Sequence[Mapping[str, Any]], known: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Return schema entries with the attributes that editors omit, taken from the entry they replace."""
    before = {(entry["key"], entry["type"]): entry for entry in known}
    repaired: list[Mapping[str, Any]] = []
    for entry in sent:
        old = before.get((entry["key"], entry["type"]), {})
        filled = {name: old[name] for name in REPAIRED if name in old and name not in entry}
        repaired.append({**entry, **filled})
    return repaired
