"""Shapes of hog functions on the wire (spec: hog-functions-api 3-8, 13, 19)."""

from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from hoglab.functions.configuration import reference
from hoglab.functions.configuration.delivery_policy import DeliveryBody
from hoglab.http.fields.fields import (
    Bool,
    Choice,
    Int,
    JsonAny,
    JsonList,
    JsonObject,
    Moment,
    Text,
    WireModel,
    fail,
)
from hoglab.http.fields.notes import Note
from hoglab.http.fields.property_filters import OpenProperties
from hoglab.http.fields.unknown_keys import Keys
from hoglab.http.fields.wire import FieldWarning, UserOut

FUNCTION_TYPES = (
    "destination",
    "site_destination",
    "internal_destination",
    "source_webhook",
    "warehouse_source_webhook",
    "site_app",
    "transformation",
    "transformation_log",
)
INPUT_TYPES = (
    "string",
    "number",
    "boolean",
    "dictionary",
    "choice",
    "json",
    "integration",
    "integration_multi",
    "integration_field",
    "email",
    "native_email",
    "posthog_assignee",
    "posthog_business_hours",
    "posthog_ticket_tags",
    "customer_analytics_account_properties",
    "customer_analytics_account_relationships",
    "non_failure_status_codes",
    "task_model",
    "task_repository",
    "task_mcp_installations",
)
FILTER_SOURCES = (
    "events",
    "person-updates",
    "data-warehouse-table",
    "data-warehouse-view",
    "internal-events",
)

MAX_NAME_LENGTH = 400
MAX_EXECUTION_ORDER = 32_767
MIN_TTL_S = 60
MAX_TTL_S = 86_400


class Templating(Choice):
    """``true``, ``false``, ``"hog"`` or ``"liquid"``: how an input's text is filled in."""

    def __init__(self) -> None:
        super().__init__("hog", "liquid")

    def read(self, value: Any) -> Any:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value in self.values:
            return value
        raise fail("invalid_choice", f'"{value}" is not a valid choice.')

    def document(self) -> dict[str, Any]:
        return {"anyOf": [{"type": "boolean"}, {"type": "string", "enum": list(self.values)}]}


class InputSchemaItem(WireModel):
    """One entry of ``inputs_schema``: an input that the function asks for."""

    notes = reference.INPUT

    type: Annotated[str, Choice(*INPUT_TYPES)]
    key: Annotated[str, Text()]
    label: Annotated[str, Text(blank=True)] = ""
    choices: Annotated[list[dict[str, Any]], JsonList(of=JsonObject())] = Field(default_factory=list)
    searchable: Annotated[bool, Bool()] = False
    required: Annotated[bool, Bool()] = False
    default: Annotated[Any, JsonAny()] = None
    secret: Annotated[bool, Bool()] = False
    hidden: Annotated[bool, Bool()] = False
    description: Annotated[str, Text()] = ""
    integration: Annotated[str, Text()] = ""
    integration_key: Annotated[str, Text()] = ""
    requires_field: Annotated[str, Text()] = ""
    integration_field: Annotated[str, Text()] = ""
    requiredScopes: Annotated[str, Text()] = ""  # noqa: N815 - the wire's name
    templating: Annotated[bool | str, Templating()] = True

    def stored(self) -> dict[str, Any]:
        """Return the entry as it is kept and shown: what was sent, and the three flags always."""
        always = {"required", "secret", "hidden"}
        return {
            name: getattr(self, name)
            for name in type(self).model_fields
            if name in self.model_fields_set or name in always
        }


class InputItem(WireModel):
    """One entry of ``inputs``."""

    notes = reference.INPUT
    unused = frozenset({"bytecode", "order", "transpiled"})

    value: Annotated[Any, JsonAny()] = None
    templating: Annotated[str, Choice("hog", "liquid")] | None = None
    secret: Annotated[Any, JsonAny()] = None


class FilterEntry(WireModel):
    """An event or an action that a function is for."""

    notes = reference.PARTS
    unused = frozenset({"custom_name", "index", "kind", "math", "math_property", "math_hogql", "uuid"})
    mistakable: ClassVar[dict[str, str]] = {"event": "id", "action": "id", "filters": "properties"}

    id: Any = None
    name: Any = None
    type: Any = None
    order: Any = None
    properties: OpenProperties | None = None


Entries = Annotated[list[dict[str, Any]], JsonList(of=JsonObject()), Keys(list[FilterEntry])]


class Filters(WireModel):
    """Filters that select the events of a function (spec: hog-functions-api 6.1)."""

    notes = reference.PARTS
    unused = frozenset({"bytecode", "bytecode_error", "transpiled"})

    source: Annotated[str, Choice(*FILTER_SOURCES)] = "events"
    events: Entries | None = None
    actions: Entries | None = None
    properties: Annotated[list[dict[str, Any]], JsonList(of=JsonObject()), Keys(OpenProperties)] | None = None
    data_warehouse: Annotated[list[dict[str, Any]], JsonList(of=JsonObject())] | None = None
    filter_test_accounts: Annotated[bool, Bool()] | None = None


class Masking(WireModel):
    """Suppression of repeats (spec: hog-functions-api 7)."""

    notes = reference.PARTS
    unused = frozenset({"bytecode"})

    ttl: Annotated[int, Int(min=MIN_TTL_S, max=MAX_TTL_S)]
    threshold: Annotated[int, Int()] | None = None
    hash: Annotated[str, Text()]


class Mapping(WireModel):
    """One mapping: inputs and filters of its own (spec: hog-functions-api 8)."""

    notes = reference.PARTS

    name: Annotated[str, Text(blank=True)] | None = None
    disabled: Annotated[bool, Bool()] = False
    inputs_schema: list[InputSchemaItem] | None = None
    inputs: dict[str, InputItem | None] | None = None
    filters: Filters | None = None


class ExpectedRequest(WireModel):
    """A request that a test case expects; fields that it does not name, and other headers, may be anything."""

    notes = reference.TESTS
    closed = True

    url: Annotated[str, Text()] | None = None
    method: Annotated[str, Text()] | None = None
    headers: Annotated[dict[str, Any], JsonObject()] | None = None
    body: Annotated[Any, JsonAny()] = None


class Expectation(WireModel):
    """Expected outcome of a test case; a field that is left out is not checked."""

    notes = reference.TESTS
    closed = True

    status: Annotated[str, Choice("success", "error", "skipped")] = "success"
    result: Annotated[Any, JsonAny()] = None
    requests: list[ExpectedRequest] | None = None
    logs: list[Annotated[str, Text()]] | None = None


class StoredTest(WireModel):
    """A test case of a function. ``responses`` answer its requests in turn; further ones get an empty 200."""

    notes = reference.TESTS
    closed = True

    name: Annotated[str, Text(max_length=MAX_NAME_LENGTH)]
    globals: Annotated[dict[str, Any], JsonObject()]
    responses: Annotated[list[dict[str, Any]], JsonList(of=JsonObject())] = Field(default_factory=list)
    expect: Expectation = Field(default_factory=Expectation)


class FunctionBody(WireModel):
    """Writable fields of a function: everything for create, any part of it for update.

    The fields stand in the order in which the first of several errors is reported.
    """

    notes = reference.FUNCTION

    type: Annotated[str, Choice(*FUNCTION_TYPES)] | None = "destination"
    name: Annotated[str, Text(max_length=MAX_NAME_LENGTH, blank=True)] | None = None
    description: Annotated[str, Text(blank=True)] = ""
    enabled: Annotated[bool, Bool()] = False
    deleted: Annotated[bool, Bool()] = False
    hog: Annotated[str, Text()] = ""
    inputs_schema: list[InputSchemaItem] = Field(default_factory=list)
    inputs: dict[str, InputItem | None] = Field(default_factory=dict)
    filters: Filters | None = None
    masking: Masking | None = None
    mappings: list[Mapping] | None = None
    icon_url: Annotated[str, Text(blank=True)] | None = None
    template_id: Annotated[str, Text(max_length=MAX_NAME_LENGTH)] | None = None
    execution_order: Annotated[int, Int(min=0, max=MAX_EXECUTION_ORDER)] | None = None
    create_in_folder: Annotated[str, Text(blank=True)] | None = Field(None, alias="_create_in_folder")
    base_updated_at: Annotated[datetime, Moment()] | None = None
    x_tests: list[StoredTest] | None = None
    x_delivery: DeliveryBody | None = None
    force: Annotated[bool, Bool()] = False


class RollbackBody(WireModel):
    """Options of a return to a version. ``force``: whether failing test cases are ignored."""

    notes = reference.VERSIONS

    force: Annotated[bool, Bool()] = False


class RestoreBody(WireModel):
    """Options of a restored draft. ``overwrite``: whether an existing draft may be replaced."""

    notes = reference.VERSIONS

    overwrite: Annotated[bool, Bool()] = False


class PublishBody(WireModel):
    """Options of publishing a draft. Without ``confirm``, a preview is returned."""

    notes = reference.VERSIONS

    confirm: Annotated[bool, Bool()] = False
    confirm_token: Annotated[str, Text()] | None = None


class RearrangeBody(WireModel):
    """New places in the execution order, by function id."""

    notes = reference.PARTS

    orders: Annotated[dict[str, Any], JsonObject()] | None = None


class FunctionListQuery(WireModel):
    """The parameters of the list, for the documents; the handler reads them one by one."""

    notes = reference.LISTING

    limit: Annotated[int, Int(min=1, max=1000)] = 100
    offset: Annotated[int, Int(min=0)] = 0
    type: Annotated[str, Text()] | None = None
    enabled: Annotated[bool, Bool()] | None = None
    id: Annotated[str, Text()] | None = None
    created_by: Annotated[int, Int()] | None = None
    created_at: Annotated[datetime, Moment()] | None = None
    updated_at: Annotated[datetime, Moment()] | None = None
    search: Annotated[str, Text(max_length=200)] | None = None
    filters: Annotated[str, Text()] | None = None
    filter_groups: Annotated[str, Text()] | None = None
    full: Annotated[bool, Bool()] = False


class TemplateQuery(WireModel):
    """The parameters of the template list."""

    notes = reference.TEMPLATE_LISTING

    limit: Annotated[int, Int(min=1, max=1000)] = 100
    offset: Annotated[int, Int(min=0)] = 0
    type: Annotated[str, Choice(*FUNCTION_TYPES)] | None = None
    types: Annotated[str, Text()] | None = None
    template_id: Annotated[str, Text()] | None = None


class StatusOut(WireModel):
    """State of a function at run time (spec: hog-functions-api 12)."""

    notes = reference.FUNCTION

    state: int
    tokens: int


class TemplateOut(WireModel):
    """A template (spec: hog-functions-api 11.1)."""

    notes = reference.TEMPLATE

    id: str
    name: str
    description: str | None
    code: str
    code_language: Literal["hog", "javascript"]
    inputs_schema: list[dict[str, Any]]
    type: str
    status: str
    category: list[str]
    free: bool
    icon_url: str | None
    filters: dict[str, Any] | None
    masking: dict[str, Any] | None
    mapping_templates: list[dict[str, Any]] | None


class FunctionListItem(WireModel):
    """A function in a list."""

    notes = reference.FUNCTION

    id: str
    type: str | None
    name: str | None
    description: str
    created_at: datetime
    created_by: UserOut | None
    updated_at: datetime
    enabled: bool
    hog: str
    filters: dict[str, Any]
    icon_url: str | None
    template: TemplateOut | None
    status: StatusOut
    execution_order: int | None


class DiagnosticOut(WireModel):
    """One finding about a configuration; places are positions inside of the text that ``attr`` names."""

    notes = reference.EDITING

    attr: str | None
    severity: Literal["error", "warning", "notice"]
    code: str
    message: str
    line: int | None
    column: int | None
    start: int | None
    end: int | None
    hint: str | None
    refused: bool
    path: list[str | int] = Field(default_factory=list)


class FunctionOut(FunctionListItem):
    """A function in full."""

    deleted: bool
    bytecode: list[Any] | None
    transpiled: str | None
    inputs_schema: list[dict[str, Any]]
    inputs: dict[str, Any]
    masking: dict[str, Any] | None
    mappings: list[dict[str, Any]] | None
    template_id: str | None
    create_in_folder: str | None = Field(None, alias="_create_in_folder")
    batch_export_id: str | None
    version: int
    draft: dict[str, Any] | None
    draft_updated_at: datetime | None
    x_tests: list[dict[str, Any]] = Field(default_factory=list)
    """Present when the function has test cases."""
    x_delivery: DeliveryBody | None = None
    """Present when the function has delivery options."""
    warnings: list[FieldWarning] = Field(default_factory=list)
    """Present when part of the function, or of the request, has no effect."""
    diagnostics: list[DiagnosticOut] = Field(default_factory=list)
    """Doubtful places of the function's texts, such as names that do not exist; present in answers to its saving."""


class IconOut(WireModel):
    """An icon that a function may show."""

    notes = reference.LISTING

    id: str
    name: str
    url: str


class CompletionsQuery(WireModel):
    """Kind of text for which completions are requested."""

    notes = reference.LISTING

    type: Annotated[str, Choice(*FUNCTION_TYPES)] = "destination"
    purpose: Annotated[str, Choice("body", "template", "filter")] = "body"


class GlobalOut(WireModel):
    """A name that a text may read."""

    notes = reference.EDITING

    name: str
    type: str
    description: str


class LibraryFunctionOut(WireModel):
    """A function that a text may call."""

    notes = reference.EDITING

    name: str
    signature: str
    returns: str
    description: str
    category: str
    is_async: bool
    examples: list[str]


class CompletionsOut(WireModel):
    """Names that a text may use."""

    notes = reference.EDITING

    globals: list[GlobalOut]
    functions: list[LibraryFunctionOut]


class DiagnosticsOut(WireModel):
    """Every finding, in the order of the fields."""

    notes = reference.EDITING

    diagnostics: list[DiagnosticOut]


class VersionItem(WireModel):
    """One version in a list."""

    notes = reference.VERSIONS

    version: int
    created_at: datetime
    created_by: UserOut | None


class VersionOut(VersionItem):
    """One version with its content: code, schema, inputs without secrets, filters, masking, mappings."""

    content: dict[str, Any]


class PublishOut(WireModel):
    """Changes that publishing the draft would make, or the published function."""

    notes = reference.VERSIONS

    published: bool
    draft_updated_at: datetime | None
    confirm_token: str | None
    changed_fields: list[str] | None
    function: FunctionOut | None


class DiffQuery(WireModel):
    """The versions to compare. ``to`` is the other version, the present one when it is not named."""

    notes = reference.VERSIONS

    to: Annotated[int, Int(min=1, max=2**31 - 1)] | None = None


class ChangeOut(WireModel):
    """One field that differs; ``diff`` is the unified diff of the code."""

    notes = reference.VERSIONS

    field: str
    before: Any
    after: Any
    diff: str | None


class VersionChangesOut(WireModel):
    """Differences between two versions."""

    notes = reference.VERSIONS

    from_version: int
    to_version: int
    changes: list[ChangeOut]


class IconsQuery(WireModel):
    """Search term for icons."""

    notes = reference.LISTING

    query: str | None = None


class IconQuery(WireModel):
    """Id of the requested icon."""

    notes = {"id": Note("The id of the icon.", "slack.com")}  # noqa: RUF012

    id: str
