"""Stored functions made ready to run.

Nothing here runs a function's body; delivery and transformations do, with the results of this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hoglab.filters.hog import CompiledFilter, FilterContext, FusedDispatcher, build_filter
from hoglab.filters.model import FilterError
from hoglab.functions.configuration import TABLE_SOURCES
from hoglab.functions.configuration.delivery_policy import DEFAULT as NO_POLICY
from hoglab.functions.configuration.delivery_policy import DeliveryPolicy, compile_delivery
from hoglab.functions.configuration.stored import read_configuration
from hoglab.functions.environments import (
    MASKING_HASHES,
    GeoIpLookup,
    body_environment,
    template_environment,
)
from hoglab.functions.secrets import Redact, redactor
from hoglab.functions.templating import renderer
from hoglab.hog import (
    EXPRESSION_LIMITS,
    Input,
    Limits,
    Program,
    compile_inputs,
    compile_program,
    compile_template,
    evaluate,
)
from hoglab.hog.nodes import Field, walk
from hoglab.storage.database import DatabaseUnreadableError

if TYPE_CHECKING:
    from hoglab.functions.configuration import Configuration
    from hoglab.functions.configuration.inputs import Inputs, Item
    from hoglab.functions.secrets import SecretBox
    from hoglab.hog import Environment

NOT_RESOLVED = frozenset({"integration", "integration_multi"})
"""Types of inputs whose values name things that this server does not have: programs see null."""

VERBATIM_KEYS = {"email": "design", "native_email": "design"}
"""Parts of values that are for editors and never reach a program."""


@dataclass(frozen=True, slots=True)
class CompiledMasking:
    """Suppression of repeats: ``hash`` gives the key, ``threshold`` None means all but the first."""

    hash: Program
    ttl_s: int
    threshold: int | None

    def key(self, globals_: dict[str, Any]) -> Any:
        """Return the value whose repeats count. Raises the errors of `hoglab.hog.run.evaluate`."""
        return evaluate(self.hash, globals_)


@dataclass(frozen=True, slots=True)
class CompiledMapping:
    """One mapping of a function: its filter, and the inputs of a run that it causes."""

    id: str
    name: str | None
    filter: CompiledFilter
    inputs: Program
    inputs_schema: Sequence[Mapping[str, Any]] = ()
    """Schema of the mapping's own inputs; inputs of the function have the function's schema."""


@dataclass(eq=False)
class CompiledFunction:
    """One function. Its program is compiled when it is first needed, its filters and inputs at once."""

    id: str
    project_id: int
    type: str
    name: str
    version: int
    execution_order: int | None
    template_id: str | None
    hog: str
    source: str
    """The ``source`` of its filters: the kind of happening that it is for."""
    inputs_schema: Sequence[Mapping[str, Any]]
    filter: CompiledFilter
    inputs: Program
    mappings: Sequence[CompiledMapping] | None
    """None for a function that runs without mappings; a function with an empty list never runs."""
    masking: CompiledMasking | None
    raw_values: Mapping[str, Any] = field(default_factory=dict)
    """Values of inputs as they are stored, secrets left out."""
    stored_secrets: Sequence[Any] = field(default=(), repr=False)
    """Values of secret inputs as they are stored, those of mappings too."""
    geoip: GeoIpLookup | None = None
    renders: bool = False
    """Whether any of its own inputs is a Liquid template."""
    delivery: DeliveryPolicy = NO_POLICY

    @cached_property
    def program(self) -> Program:
        """The function's program. Raises `HogSourceError` for code that this version cannot compile."""
        return compile_program(self.hog, body_environment(self.type, self.geoip))

    def filters(self) -> list[CompiledFilter]:
        """Return the function's own filter and the filters of its mappings."""
        return [self.filter, *(mapping.filter for mapping in self.mappings or ())]

    @cached_property
    def reads(self) -> frozenset[str]:
        """The roots of the globals that its filters look at."""
        return frozenset(_roots(self.filters()))

    @property
    def label(self) -> str:
        """``source.name`` of the globals."""
        return self.name or f"Hog function: {self.id}"

    @cached_property
    def has_fixed_inputs(self) -> bool:
        """Whether its inputs are the same for every event."""
        return not self.inputs.leaves and not self.renders

    @property
    def reads_inputs_early(self) -> bool:
        """Whether anything but the program may read its inputs: masking, or the order key."""
        return self.masking is not None or self.delivery.order is not None

    @cached_property
    def fixed_inputs(self) -> tuple[dict[str, Any], Redact]:
        """The inputs of a function whose inputs are fixed, and the function that hides the secrets among them.

        Raises the errors of `build_inputs`.
        """
        inputs = self.build_inputs({"event": {"properties": {}}})
        return inputs, self.redactor(inputs)

    def build_inputs(
        self, globals_: Mapping[str, Any], mapping: CompiledMapping | None = None
    ) -> dict[str, Any]:
        """Return the inputs of one run. Raises the errors of `hoglab.hog.run.evaluate`; ``path`` names the input."""
        variables = dict(globals_)
        if self.source in TABLE_SOURCES:
            variables["record"] = variables["event"]["properties"]
        built: dict[str, Any] = evaluate(self.inputs if mapping is None else mapping.inputs, variables)
        return built

    def input_failure(self, error: BaseException) -> str:
        """Return the message for an error of `build_inputs`: its text, with secrets redacted."""
        return self.redact_stored(str(getattr(error, "message", None) or error))

    @cached_property
    def redact_stored(self) -> Redact:
        """The function that replaces secrets, as they are stored, in texts for people."""
        hidden = {str(index): value for index, value in enumerate(self.stored_secrets)}
        schema = [{"key": key, "type": "string", "secret": True} for key in hidden]
        return redactor(schema, hidden)

    def mapping_of(self, mapping_id: str | None) -> CompiledMapping | None:
        """Return the mapping with this id; None for no id, and for a mapping that is no longer in use."""
        if mapping_id is None:
            return None
        return next((mapping for mapping in self.mappings or () if mapping.id == mapping_id), None)

    def lacks_mapping(self, mapping_id: str | None) -> bool:
        """Return whether a run was for a mapping that is no longer in use: it has no inputs then."""
        return mapping_id is not None and self.mapping_of(mapping_id) is None

    def redactor(
        self,
        inputs: Mapping[str, Any],
        mapping: CompiledMapping | None = None,
        request: Mapping[str, Any] | None = None,
    ) -> Redact:
        """Return a function that hides in texts the secrets among built inputs, and those of a webhook's request."""
        schema = self.inputs_schema if mapping is None else [*self.inputs_schema, *mapping.inputs_schema]
        return redactor(schema, inputs, request)

    @property
    def non_failure_status_codes(self) -> Sequence[int | str]:
        """HTTP statuses that do not make a run fail (spec: hog-runtime 4.5)."""
        for entry in self.inputs_schema:
            if entry["type"] == "non_failure_status_codes":
                value = self.raw_values.get(entry["key"])
                return value if isinstance(value, list) else ()
        return ()


def compile_function(
    row: Mapping[str, Any],
    box: SecretBox,
    context: FilterContext,
    geoip: GeoIpLookup | None = None,
    limits: Limits = EXPRESSION_LIMITS,
) -> CompiledFunction:
    """Make a stored function ready; ``limits`` apply to its filters and inputs.

    Raises `SecretsError` and `HogSourceError`.
    """
    return compile_configuration(
        read_configuration(row, box),
        context,
        function_id=row["id"],
        project_id=row["project_id"],
        version=row["version"],
        geoip=geoip,
        limits=limits,
    )


def compile_configuration(
    configuration: Configuration,
    context: FilterContext,
    *,
    function_id: str,
    project_id: int,
    version: int = 1,
    geoip: GeoIpLookup | None = None,
    limits: Limits = EXPRESSION_LIMITS,
) -> CompiledFunction:
    """Make a configuration ready, stored or not (test runs). Raises `HogSourceError`."""
    kind = configuration.type or "destination"
    own = configuration.inputs.in_order()
    mappings = configuration.mappings
    masking = configuration.masking
    environment = template_environment(kind, geoip, limits)
    return CompiledFunction(
        id=function_id,
        project_id=project_id,
        type=kind,
        name=configuration.name or "",
        version=version,
        execution_order=configuration.execution_order,
        template_id=configuration.template_id,
        hog=configuration.hog,
        source=configuration.filters.get("source", "events"),
        inputs_schema=configuration.inputs_schema,
        filter=compile_filter(configuration.filters, context, limits),
        inputs=_inputs(own, configuration.inputs_schema, environment),
        mappings=None
        if mappings is None
        else [
            CompiledMapping(
                mapping.id,
                mapping.name,
                compile_filter(mapping.filters, context, limits),
                _inputs(
                    _overridden(configuration.inputs, mapping.inputs),
                    [*configuration.inputs_schema, *mapping.inputs_schema],
                    environment,
                ),
                mapping.inputs_schema,
            )
            for mapping in mappings
            if not mapping.disabled
        ],
        masking=None if masking is None else _masking(masking),
        raw_values={key: item["value"] for key, item in configuration.inputs.plain.items()},
        stored_secrets=[
            item["value"]
            for inputs in (configuration.inputs, *(mapping.inputs for mapping in mappings or ()))
            for item in inputs.secret.values()
        ],
        geoip=geoip,
        renders=any(item.get("templating") == "liquid" for _, item in own),
        delivery=compile_delivery(configuration.x_delivery),
    )


def compile_filter(
    filters: Mapping[str, Any] | None, context: FilterContext, limits: Limits = EXPRESSION_LIMITS
) -> CompiledFilter:
    """Return the filter of stored ``filters``; a filter that cannot be compiled fails on every event."""
    try:
        return CompiledFilter(build_filter(filters, context), limits)
    except FilterError:
        return CompiledFilter(None)


def _overridden(own: Inputs, mapping: Inputs) -> list[tuple[str, Item]]:
    """Return a function's inputs with those of a mapping in their place, in the order of their computation."""
    merged = {**dict(own.in_order()), **dict(mapping.in_order())}
    return sorted(merged.items(), key=lambda pair: pair[1].get("order", -1))


def _inputs(
    items: Sequence[tuple[str, Item]],
    schema: Sequence[Mapping[str, Any]],
    environment: Environment,
) -> Program:
    types = {entry["key"]: entry["type"] for entry in schema}
    missing = [key for key in types if key not in {key for key, _ in items}]
    inputs = [Input(key, None, "plain") for key in missing]
    inputs += [_input(key, item, types.get(key, "string")) for key, item in items]
    rendered = {entry.key: entry.value for entry in inputs if entry.mode == "rendered"}
    return compile_inputs(inputs, environment, renderer(rendered) if rendered else None)


def _input(key: str, item: Item, input_type: str) -> Input:
    value = item.get("value")
    if input_type in NOT_RESOLVED:
        return Input(key, None, "plain")
    verbatim = VERBATIM_KEYS.get(input_type)
    if verbatim is not None and isinstance(value, dict):
        value = {name: part for name, part in value.items() if name != verbatim}
    if item.get("templating") == "liquid":
        return Input(key, value, "rendered")
    return Input(key, value, "hog" if "bytecode" in item else "plain")


def _masking(masking: Mapping[str, Any]) -> CompiledMasking:
    return CompiledMasking(
        compile_template(masking["hash"], MASKING_HASHES), masking["ttl"], masking.get("threshold")
    )


class FunctionSet:
    """Functions that run on the same happenings, in the order in which they are evaluated."""

    def __init__(self, functions: Sequence[CompiledFunction], before: FunctionSet | None = None) -> None:
        """Create the set. ``before`` is the previous one; filters that did not change are taken over from it."""
        self.functions = tuple(functions)
        self._dispatcher: FusedDispatcher | None = None
        self._earlier = None if before is None else before.latest
        self.reads: frozenset[str] = frozenset().union(*{function.reads for function in self.functions})
        """The roots that filters, those of mappings included, look at: no other globals need be made for them."""

    @property
    def latest(self) -> FusedDispatcher | None:
        """The dispatcher of this set or, while nobody has needed it, of the last one before that has one."""
        return self._earlier if self._dispatcher is None else self._dispatcher

    @property
    def dispatcher(self) -> FusedDispatcher:
        """All filters as one, compiled when it is first needed: transformations never need it.

        Raises `DatabaseError` when they cannot be compiled: no event is to blame for it.
        """
        if self._dispatcher is None:
            filters = [function.filter for function in self.functions]
            try:
                self._dispatcher = FusedDispatcher(filters, self._earlier)
            except Exception as error:
                raise DatabaseUnreadableError(
                    f"the filters of functions cannot be compiled ({type(error).__name__}: {error})"
                ) from error
            self._earlier = None
        return self._dispatcher

    def __len__(self) -> int:
        return len(self.functions)


def _roots(filters: Iterable[CompiledFilter]) -> Iterator[str]:
    for compiled in filters:
        if compiled.expression is not None:
            for node in walk(compiled.expression.node):
                if isinstance(node, Field):
                    yield node.chain[0]
