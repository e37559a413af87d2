"""Field types: what is accepted and what is said otherwise (spec: experiments-api 1.5)."""

from datetime import UTC, datetime
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, TypeAdapter, ValidationError, field_validator, model_validator

from hoglab.http.errors import ApiError, from_pydantic
from hoglab.http.fields import fields
from hoglab.http.fields.fields import (
    Bool,
    Choice,
    Int,
    JsonAny,
    JsonList,
    JsonObject,
    Moment,
    Number,
    PrimaryKey,
    Text,
    Uuid,
    WireModel,
)

REFUSED = "refused"


def read(marker: Any, value: Any) -> Any:
    """What a field of that type makes of a value: the value, or (code, detail)."""

    class Model(WireModel):
        field: Annotated[Any, marker]

    try:
        return Model.model_validate({"field": value}).field
    except ValidationError as error:
        wire = from_pydantic(error)
        assert (wire.status, wire.type, wire.attr) == (400, "validation_error", "field")
        return REFUSED, wire.code, wire.detail


NULL = (REFUSED, "null", "This field may not be null.")
BLANK = (REFUSED, "blank", "This field may not be blank.")
NO_STRING = (REFUSED, "invalid_input", "Not a valid string.")
NO_BOOLEAN = (REFUSED, "invalid_input", "Must be a valid boolean.")
NO_INTEGER = (REFUSED, "invalid_input", "A valid integer is required.")
NO_NUMBER = (REFUSED, "invalid_input", "A valid number is required.")
NO_MOMENT = (
    REFUSED,
    "invalid_input",
    "Datetime has wrong format. Use one of these formats instead: YYYY-MM-DDThh:mm[:ss[.uuuuuu]][+HH:MM|-HH:MM|Z].",
)
UUID_TEXT = "0b0e7b0c-6d3f-4d38-9d0c-0c2ad1e4b4a1"


@pytest.mark.parametrize(
    ("marker", "value", "result"),
    [
        (Text(), "a", "a"),
        (Text(), "  a b\n", "a b"),
        (Text(trim=False), " a ", " a "),
        (Text(), 5, "5"),
        (Text(), 1.5, "1.5"),
        (Text(), True, NO_STRING),
        (Text(), [], NO_STRING),
        (Text(), {}, NO_STRING),
        (Text(), None, NULL),
        (Text(), "", BLANK),
        (Text(), " \t", BLANK),
        (Text(trim=False), " ", BLANK),
        (Text(blank=True), " ", ""),
        (Text(max_length=3), " abc ", "abc"),
        (Text(max_length=400), "a" * 400, "a" * 400),
        (
            Text(max_length=400),
            "a" * 401,
            (REFUSED, "max_length", "Ensure this field has no more than 400 characters."),
        ),
        (Text(), "a\0b", (REFUSED, "null_characters_not_allowed", "Null characters are not allowed.")),
        (Text(), "{braces} and %", "{braces} and %"),
        *(
            (Bool(), value, True)
            for value in (True, "true", "True", "TRUE", "t", "y", "yes", "on", "1", 1, "Yes")
        ),
        *(
            (Bool(), value, False)
            for value in (False, "false", "False", "f", "n", "no", "off", "0", 0, " OFF ")
        ),
        *((Bool(), value, NO_BOOLEAN) for value in ("", "maybe", 2, 0.5, [], {})),
        (Bool(), None, NULL),
        (Int(), 5, 5),
        (Int(), "5", 5),
        (Int(), " -5 ", -5),
        (Int(), "+5", 5),
        (Int(), 5.0, 5),
        (Int(), "5.0", 5),
        *(
            (Int(), value, NO_INTEGER)
            for value in ("", "5.5", 5.5, "five", True, [], {}, "1_0", "٣", "9" * 2000, ".", "-")
        ),
        (Int(), None, NULL),
        (
            Int(min=60, max=86400),
            59,
            (REFUSED, "min_value", "Ensure this value is greater than or equal to 60."),
        ),
        (
            Int(min=60, max=86400),
            86401,
            (REFUSED, "max_value", "Ensure this value is less than or equal to 86400."),
        ),
        (
            Int(),
            10**30,
            (REFUSED, "max_value", "Ensure this value is less than or equal to 9223372036854775807."),
        ),
        (Number(), 5, 5),
        (Number(), "1.5", 1.5),
        (Number(), "1e3", 1000.0),
        *((Number(), value, NO_NUMBER) for value in ("", "nan", "inf", "1e999", "x", True, [], "1" * 2000)),
        (Number(max=1), 2, (REFUSED, "max_value", "Ensure this value is less than or equal to 1.")),
        (Number(min=0.5), 0, (REFUSED, "min_value", "Ensure this value is greater than or equal to 0.5.")),
        (Moment(), "2026-01-02T03:04:05Z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        (Moment(), "2026-01-02", datetime(2026, 1, 2, tzinfo=UTC)),
        *(
            (Moment(), value, NO_MOMENT)
            for value in ("", "soon", 5, True, [], "2026-02-30", "0001-01-01T00:00+14:00")
        ),
        (Moment(), None, NULL),
        (Uuid(), UUID_TEXT.upper(), UUID_TEXT),
        (Uuid(), UUID_TEXT.replace("-", ""), UUID_TEXT),
        (Uuid(), "x", (REFUSED, "invalid_input", "Must be a valid UUID.")),
        (Choice("web", "product"), "web", "web"),
        (Choice("web", "product"), "x", (REFUSED, "invalid_choice", '"x" is not a valid choice.')),
        (Choice("web", "product"), "", (REFUSED, "invalid_choice", '"" is not a valid choice.')),
        (Choice("web"), 5, (REFUSED, "invalid_choice", '"5" is not a valid choice.')),
        (Choice("web"), ["web"], (REFUSED, "invalid_choice", "\"['web']\" is not a valid choice.")),
        (Choice("web"), None, NULL),
        (PrimaryKey(), "5", 5),
        (
            PrimaryKey(),
            "five",
            (REFUSED, "incorrect_type", "Incorrect type. Expected pk value, received str."),
        ),
        (
            PrimaryKey(),
            True,
            (REFUSED, "incorrect_type", "Incorrect type. Expected pk value, received bool."),
        ),
        (PrimaryKey(), -1, (REFUSED, "does_not_exist", 'Invalid pk "-1" - object does not exist.')),
        (JsonObject(), {"a": [1]}, {"a": [1]}),
        (
            JsonObject(),
            [],
            (REFUSED, "not_a_dict", 'Expected a dictionary of items but got type "list".'),
        ),
        (JsonObject(), None, NULL),
        (JsonList(), [1, {}], [1, {}]),
        (JsonList(), {}, (REFUSED, "not_a_list", 'Expected a list of items but got type "dict".')),
        (JsonList(), "ab", (REFUSED, "not_a_list", 'Expected a list of items but got type "str".')),
        (
            JsonList(max_length=1),
            [1, 2],
            (REFUSED, "max_length", "Ensure this field has no more than 1 elements."),
        ),
        *((JsonAny(), value, value) for value in (None, 5, "a", [], {"a": None})),
    ],
)
def test_coercions(marker: Any, value: Any, result: Any) -> None:
    got = read(marker, value)
    assert (got, type(got)) == (result, type(result))


@given(
    st.sampled_from(
        [
            Text(max_length=5),
            Bool(),
            Int(),
            Number(),
            Moment(),
            Uuid(),
            Choice("a"),
            PrimaryKey(),
            JsonList(Text()),
            JsonObject(),
        ]
    ),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=5,
    ),
)
def test_any_json_is_accepted_or_refused(marker: Any, value: Any) -> None:
    adapter = TypeAdapter(Annotated[Any, marker])
    try:
        adapter.validate_python(value)
    except ValidationError as error:
        wire = from_pydantic(error)
        assert wire.status == 400
        assert wire.detail


class Inner(WireModel):
    groups: Annotated[list[str], JsonList(Text())]


class Outer(WireModel):
    name: Annotated[str, Text()]
    size: Annotated[int, Int()] = 3
    note: Annotated[str, Text()] | None = None
    filters: Inner | None = None
    items: list[Inner] = Field(default_factory=list)
    folder: Annotated[str, Text()] | None = Field(None, alias="_create_in_folder")
    plain: int | None = None
    mode: Annotated[str, Choice("a", "b")] | None = None

    @field_validator("note")
    @classmethod
    def _polite(cls, note: str | None) -> str | None:
        if note == "rude":
            raise fields.fail("invalid_key", "Please {be} polite.")
        if note == "odd":
            raise ValueError("That is odd.")
        return note

    @model_validator(mode="after")
    def _whole(self) -> "Outer":
        if self.name == "bad":
            raise ValueError("Bad as a whole.")
        if self.name == "worse":
            raise ApiError(409, "server_error", "conflict", "Worse.")
        return self


def refusal(body: Any) -> tuple[str, str, str | None]:
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate(body)
    wire = from_pydantic(caught.value)
    return wire.code, wire.detail, wire.attr


@pytest.mark.parametrize(
    ("body", "code", "detail", "attr"),
    [
        ({}, "required", "This field is required.", "name"),
        ({"name": None}, "null", "This field may not be null.", "name"),
        ({"name": "a", "note": "rude"}, "invalid_key", "Please {be} polite.", "note"),
        ({"name": "a", "note": "odd"}, "invalid_input", "That is odd.", "note"),
        ({"name": "a", "filters": {}}, "required", "This field is required.", "filters__groups"),
        (
            {"name": "a", "filters": {"groups": [1, []]}},
            "invalid_input",
            "Not a valid string.",
            "filters__groups__1",
        ),
        (
            {"name": "a", "filters": 5},
            "not_a_dict",
            'Expected a dictionary of items but got type "int".',
            "filters",
        ),
        ({"name": "a", "items": {}}, "not_a_list", 'Expected a list of items but got type "dict".', "items"),
        ({"name": "a", "items": None}, "null", "This field may not be null.", "items"),
        (
            {"name": "a", "items": [{"groups": 5}]},
            "not_a_list",
            'Expected a list of items but got type "int".',
            "items__0__groups",
        ),
        ({"name": "a", "plain": "x"}, "invalid_input", "A valid integer is required.", "plain"),
        (
            {"name": "a", "_create_in_folder": ""},
            "blank",
            "This field may not be blank.",
            "_create_in_folder",
        ),
        ({"name": "a", "mode": "c"}, "invalid_choice", '"c" is not a valid choice.', "mode"),
        ({"name": "bad"}, "invalid_input", "Bad as a whole.", None),
        ({"size": "x", "mode": "c"}, "required", "This field is required.", "name"),
        ({"mode": "c", "size": "x", "name": "a"}, "invalid_input", "A valid integer is required.", "size"),
    ],
)
def test_first_error_in_the_order_of_the_fields(body: Any, code: str, detail: str, attr: str | None) -> None:
    assert refusal(body) == (code, detail, attr)


def test_wire_errors_pass_through_validators() -> None:
    with pytest.raises(ApiError, match="Worse"):
        Outer.model_validate({"name": "worse"})


def test_unknown_keys_are_ignored_and_sent_ones_known() -> None:
    model = Outer.model_validate({"name": " a ", "nonsense": 1, "note": None, "_create_in_folder": "x"})
    assert model.sent() == {"name": "a", "note": None, "folder": "x"}
    assert model.model_fields_set == {"name", "note", "folder"}


def test_schemas_for_the_documents() -> None:
    schema = Outer.model_json_schema()
    assert schema["required"] == ["name"]
    assert schema["properties"]["name"] == {"type": "string", "minLength": 1, "title": "Name"}
    assert schema["properties"]["mode"]["anyOf"][0] == {"type": "string", "enum": ["a", "b"]}
    assert schema["$defs"]["Inner"]["properties"]["groups"]["items"] == {"type": "string", "minLength": 1}
