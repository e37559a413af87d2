"""From the inputs of a request to the inputs that are stored (spec: hog-functions-api 5, 10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hoglab.functions.configuration.input_types import TYPES, problem
from hoglab.functions.errors import InvalidFunctionError, Path
from hoglab.functions.secrets import MASK
from hoglab.functions.templating import TemplateDialect, TemplateError, compile_value
from hoglab.hog import HogCompileError, order_inputs

if TYPE_CHECKING:
    from hoglab.functions.configuration.schemas import InputItem

Item = dict[str, Any]
"""A stored input: ``value``, and where they apply ``templating``, ``bytecode`` and ``order``."""


UNTOLD_TEMPLATE_ERROR = (
    "Invalid template: the value of this secret cannot be compiled. "
    "Write \\{ for a brace that is no template."
)
"""Message in place of the compiler's, which quotes parts of the value."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """Inputs as they are stored: plain ones and secret ones separately."""

    plain: Mapping[str, Item] = field(default_factory=dict)
    secret: Mapping[str, Item] = field(default_factory=dict)

    def in_order(self) -> list[tuple[str, Item]]:
        """Return all inputs in the order in which they are computed."""
        everything = [*self.plain.items(), *self.secret.items()]
        return sorted(everything, key=lambda pair: pair[1].get("order", -1))


@dataclass(frozen=True, slots=True)
class SentItem:
    """One item of a request. ``has_value`` says whether ``value`` was sent at all."""

    value: Any = None
    has_value: bool = False
    templating: str | None = None
    marked_secret: bool = False

    @classmethod
    def of(cls, item: InputItem) -> SentItem:
        return cls(item.value, "value" in item.model_fields_set, item.templating, item.secret is True)

    @classmethod
    def stored(cls, item: Mapping[str, Any]) -> SentItem:
        """Return a stored item as if it were sent again."""
        return cls(item.get("value"), True, item.get("templating"))

    @property
    def is_empty(self) -> bool:
        return not self.has_value and not self.marked_secret


def build_inputs(
    schema: Sequence[Mapping[str, Any]],
    sent: Mapping[str, SentItem],
    stored: Inputs,
    dialect: TemplateDialect,
    path: Path = ("inputs",),
) -> Inputs:
    """Check inputs, complete and compile them. ``stored`` supplies the secrets that the request does not change.

    Raises `InvalidFunctionError` for the first input, in the order of the schema, that is wrong.
    """
    entries = {entry["key"]: entry for entry in schema}
    items: dict[str, Item] = {}
    needs: dict[str, set[str]] = {}
    for key, entry in entries.items():
        item = _resolve(entry, sent.get(key), stored, (*path, key))
        _require(entry, item, (*path, key))
        if item is None:
            continue
        items[key] = item
        if item["value"] is not None:
            needs[key] = _compile(entry, item, dialect, (*path, key))
    try:
        for position, key in enumerate(order_inputs(needs, needs)):
            items[key]["order"] = position
    except HogCompileError as error:
        raise InvalidFunctionError(error.message, *path) from None
    return Inputs(
        {key: item for key, item in items.items() if not entries[key].get("secret")},
        {key: item for key, item in items.items() if entries[key].get("secret")},
    )


def _resolve(entry: Mapping[str, Any], sent: SentItem | None, stored: Inputs, path: Path) -> Item | None:
    """Return the item that a request means for an entry of the schema; None for no value."""
    if entry.get("secret"):
        item = _resolve_secret(entry["key"], sent, stored, path)
    else:
        is_set = sent is not None and (sent.has_value or sent.templating is not None)
        item = _item(sent) if sent is not None and is_set else None
    if item is None and (sent is None or sent.is_empty) and entry.get("required"):
        default = entry.get("default")
        item = None if default is None else {"value": default}
    if item is not None:
        templating = entry.get("templating")
        if templating is True:
            item["templating"] = "hog"
        elif isinstance(templating, str):
            item["templating"] = templating
    return item


def _item(sent: SentItem) -> Item:
    """Return the stored form of an input.

    A null that was sent is kept, because clients compare (spec: hog-functions-api 24).
    """
    item: Item = {"value": sent.value}
    if sent.templating is not None:
        item["templating"] = sent.templating
    return item


def _resolve_secret(key: str, sent: SentItem | None, stored: Inputs, path: Path) -> Item | None:
    kept = stored.secret.get(key) or stored.plain.get(key)
    before: Item | None = None
    # A plain value that becomes secret may have been empty, or the mask itself.
    if kept is not None and kept.get("value") not in (None, "", MASK):
        before = {name: kept[name] for name in ("value", "templating") if name in kept}
    if sent is None or sent.is_empty:
        return before
    if sent.marked_secret and (sent.value is None or sent.value == MASK):
        if before is None:
            raise InvalidFunctionError(
                "No value is saved for this secret input. Enter the value again.", *path
            )
        return before
    if sent.value == MASK:
        raise InvalidFunctionError(
            "This secret input was not updated correctly. Enter the value again.", *path
        )
    return None if sent.value in (None, "") else _item(sent)


def _require(entry: Mapping[str, Any], item: Item | None, path: Path) -> None:
    if entry.get("required") and (item is None or item["value"] in (None, "")):
        raise InvalidFunctionError("This field is required.", *path)


def _compile(entry: Mapping[str, Any], item: Item, dialect: TemplateDialect, path: Path) -> set[str]:
    """Check the value, add its compiled form, and return the inputs it needs."""
    value = item["value"]
    if not value:
        return set()
    templating = item.get("templating")
    wrong = problem(entry, value, templating)
    if wrong is not None:
        raise InvalidFunctionError(wrong, *path)
    kind = TYPES[entry["type"]]
    if templating == "liquid" or not kind.compiled or entry.get("templating") is False:
        return set()
    try:
        compiled = compile_value(value, dialect, kind.verbatim_keys)
    except TemplateError as error:
        detail = UNTOLD_TEMPLATE_ERROR if entry.get("secret") else str(error)
        raise InvalidFunctionError(detail, *path) from None
    item["transpiled" if dialect.browser else "bytecode"] = compiled.artefact
    return set(compiled.needs)


def shown_inputs(schema: Sequence[Mapping[str, Any]], inputs: Inputs, *, every_key: bool) -> dict[str, Any]:
    """Return the inputs as the API shows them: secrets as a mark, unset ones as null or (in mappings) not at all."""
    shown: dict[str, Any] = {}
    for entry in schema:
        key = entry["key"]
        if entry.get("secret"):
            if key in inputs.secret:
                shown[key] = {"secret": True}
        elif key in inputs.plain:
            shown[key] = inputs.plain[key]
        elif every_key:
            shown[key] = None
    return shown
