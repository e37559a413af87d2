"""What comes and goes on the wire for hog functions (spec: hog-functions-api 3-8, 13, 19)."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from hoglab.http.fields import (
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
        return {"enum": [True, False, *self.values]}


class InputSchemaItem(WireModel):
    """One entry of ``inputs_schema``: an input that the function asks for."""

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
        """The entry as it is kept and shown: what was sent, and the three flags always."""
        always = {"required", "secret", "hidden"}
        return {
            name: getattr(self, name)
            for name in type(self).model_fields
            if name in self.model_fields_set or name in always
        }


class InputItem(WireModel):
    """One entry of ``inputs``."""

    value: Annotated[Any, JsonAny()] = None
    templating: Annotated[str, Choice("hog", "liquid")] | None = None
    secret: Annotated[Any, JsonAny()] = None


class Filters(WireModel):
    """Which events a function is for (spec: hog-functions-api 6.1)."""

    source: Annotated[str, Choice(*FILTER_SOURCES)] = "events"
    events: Annotated[list[dict[str, Any]], JsonList(of=JsonObject())] | None = None
    actions: Annotated[list[dict[str, Any]], JsonList(of=JsonObject())] | None = None
    properties: Annotated[list[dict[str, Any]], JsonList(of=JsonObject())] | None = None
    data_warehouse: Annotated[list[dict[str, Any]], JsonList(of=JsonObject())] | None = None
    filter_test_accounts: Annotated[bool, Bool()] | None = None


class Masking(WireModel):
    """How repeats are suppressed (spec: hog-functions-api 7)."""

    ttl: Annotated[int, Int(min=MIN_TTL_S, max=MAX_TTL_S)]
    threshold: Annotated[int, Int()] | None = None
    hash: Annotated[str, Text()]


class Mapping(WireModel):
    """One mapping: inputs and filters of its own (spec: hog-functions-api 8)."""

    name: Annotated[str, Text(blank=True)] | None = None
    disabled: Annotated[bool, Bool()] = False
    inputs_schema: list[InputSchemaItem] | None = None
    inputs: dict[str, InputItem | None] | None = None
    filters: Filters | None = None


class FunctionBody(WireModel):
    """What may be written: everything for create, any part of it for update.

    The fields stand in the order in which the first of several errors is reported.
    """

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


class RearrangeBody(WireModel):
    """New places in the execution order, by function id."""

    orders: Annotated[dict[str, Any], JsonObject()] | None = None


class ListQuery(WireModel):
    """The parameters of the list, for the documents; the handler reads them one by one."""

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

    limit: Annotated[int, Int(min=1, max=1000)] = 100
    offset: Annotated[int, Int(min=0)] = 0
    type: Annotated[str, Choice(*FUNCTION_TYPES)] | None = None
    types: Annotated[str, Text()] | None = None
    template_id: Annotated[str, Text()] | None = None


class StatusOut(WireModel):
    """How the runtime feels about a function (spec: hog-functions-api 12)."""

    state: int
    tokens: int


class UserOut(WireModel):
    """The ``created_by`` object."""

    id: int
    uuid: str
    distinct_id: str | None
    first_name: str
    last_name: str
    email: str
    is_email_verified: bool | None
    hedgehog_config: dict[str, Any] | None
    role_at_organization: str | None


class TemplateOut(WireModel):
    """A template (spec: hog-functions-api 11.1)."""

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


class FunctionPage(WireModel):
    """A page of the list."""

    count: int
    next: str | None
    previous: str | None
    results: list[FunctionListItem]


class TemplatePage(WireModel):
    """A page of templates."""

    count: int
    next: str | None
    previous: str | None
    results: list[TemplateOut]


class IconOut(WireModel):
    """An icon that a function may show."""

    id: str
    name: str
    url: str
