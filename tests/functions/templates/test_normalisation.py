"""How templates make identifiers, money and texts ready for a platform, by the documents that they name."""

from __future__ import annotations

import hashlib
from typing import Any
from uuid import UUID

import pytest
from tests.functions.templates.cases import EVENT, PERSON

from hoglab import hog
from hoglab.functions.templates import find_template


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def sent(folder: str, inputs: dict[str, Any], properties: dict[str, Any] | None = None) -> Any:
    """Return the body of the last request of a template."""
    template = find_template(f"template-{folder}")
    assert template is not None
    bodies: list[Any] = []

    def fetch(_url: str, options: dict[str, Any]) -> dict[str, Any]:
        bodies.append(options["body"])
        return {"status": 200, "body": {"access_token": "t"}, "headers": {}}

    event = {**EVENT, "properties": properties or {}}
    hog.run(template.code, {"event": event, "person": PERSON, "inputs": inputs}, host={"fetch": fetch})
    return bodies[-1]


def meta(name: str, value: Any) -> Any:
    return sent("meta-ads", {"userData": {name: value}})["data"][0]["user_data"][name]


def tiktok(name: str, value: Any) -> Any:
    return sent("tiktok-ads", {"userProperties": {name: value}})["data"][0]["user"][name]


def reddit(name: str, value: Any) -> Any:
    return sent("reddit-ads", {"userProperties": {name: value}})["data"]["events"][0]["user"][name]


def linkedin(_name: str, value: Any) -> Any:
    return sent("linkedin-ads", {"email": value})["user"]["userIds"][0]["idValue"]


def google(_name: str, value: Any) -> Any:
    inputs = {"email": value, "customerId": "1", "conversionActionId": "2"}
    body = sent("google-ads", inputs)
    return body["events"][0]["userData"]["userIdentifiers"][0]["emailAddress"]


VECTORS = [
    (meta, "em", " John_Smith@gmail.com ", "john_smith@gmail.com"),
    (meta, "ph", "(650) 555-1212", "6505551212"),
    (meta, "ph", "+1 (650) 555-1212", "16505551212"),
    (meta, "ph", "0044 20 7946 0958", "442079460958"),
    (meta, "ph", 442079460958, "442079460958"),
    (meta, "fn", "Mary-Ann ", "maryann"),
    (meta, "ln", "\u674e", "\u674e"),
    (meta, "ge", "Female", "f"),
    (meta, "db", "1997-02-16", "19970216"),
    (meta, "ct", "St. John's", "stjohns"),
    (meta, "st", "C.A.", "ca"),
    (meta, "zp", "94035-1234", "94035"),
    (meta, "zp", "M1 1AE", "m11ae"),
    (meta, "country", "US", "us"),
    (tiktok, "email", " Ann@Example.com", "ann@example.com"),
    (tiktok, "phone", "+1 (213) 373-4253", "+12133734253"),
    (tiktok, "phone", "0049 30 1234567", "+49301234567"),
    (reddit, "email", "Al.ice$+Apple@Example.Com", "alice@example.com"),
    (reddit, "phone_number", "+1 (213) 373-4253", "+12133734253"),
    (linkedin, "email", " Ann@Example.com ", "ann@example.com"),
    (google, "email", "Cloudy.SanFrancisco+shopping@Gmail.com", "cloudysanfrancisco@gmail.com"),
    (google, "email", "user.name+NYC@Example.com", "user.name+nyc@example.com"),
]


@pytest.mark.parametrize(("platform", "name", "value", "normal"), VECTORS)
def test_identifiers_are_hashed_in_the_form_of_the_platform(
    platform: Any, name: str, value: Any, normal: str
) -> None:
    found = platform(name, value)
    assert found in (digest(normal), [digest(normal)])


@pytest.mark.parametrize(("platform", "name"), sorted({(v[0], v[1]) for v in VECTORS}, key=str))
def test_what_is_hashed_already_stays_as_it_is(platform: Any, name: str) -> None:
    known = digest("somebody")
    for value in (known, known.upper()):
        assert platform(name, value) in (known, [known])


def test_each_of_several_values_is_hashed() -> None:
    both = ["+1 650 555 1212", digest("x")]
    assert meta("ph", both) == [digest("16505551212"), digest("x")]
    assert tiktok("phone", both) == [digest("+16505551212"), digest("x")]


NOTHING = ["", "  ", "-", "n/a"]
"""Texts without any character of a phone number, of which the blank ones are nothing anywhere."""


@pytest.mark.parametrize("value", NOTHING)
def test_what_is_nothing_in_the_form_of_the_platform_is_left_out(value: str) -> None:
    names = {"em", "ph", "fn", "ct", "zp", "country"} if not value.strip() else {"ph", "db"}
    users = {
        "meta-ads": (names, lambda body: body["data"][0]["user_data"], "userData"),
        "tiktok-ads": (
            {"email", "phone", "external_id"} if not value.strip() else {"phone"},
            lambda body: body["data"][0]["user"],
            "userProperties",
        ),
        "reddit-ads": (
            {"email", "phone_number", "external_id"} if not value.strip() else {"phone_number"},
            lambda body: body["data"]["events"][0]["user"],
            "userProperties",
        ),
    }
    for folder, (fields, user_of, field) in users.items():
        for name in fields:
            given = [value, [value]] if folder != "reddit-ads" else [value]
            for one in given:
                assert name not in user_of(sent(folder, {field: {name: one}})), (folder, name)
    if not value.strip():
        google_ads = {"email": value, "gclid": "g", "customerId": "1", "conversionActionId": "2"}
        assert "userData" not in sent("google-ads", google_ads)["events"][0]
        clicked = sent("linkedin-ads", {"email": value, "clickId": "c"})
        assert [known["idType"] for known in clicked["user"]["userIds"]] == [
            "LINKEDIN_FIRST_PARTY_ADS_TRACKING_UUID"
        ]


def test_blanks_around_an_address_are_no_part_of_it() -> None:
    address = " Ann@Example.com "
    bodies = {
        "hubspot": lambda body: body["inputs"][0]["id"],
        "hubspot-event": lambda body: body["email"],
        "intercom-event": lambda body: body["email"],
        "klaviyo-event": lambda body: body["data"]["attributes"]["profile"]["data"]["attributes"]["email"],
        "klaviyo-user": lambda body: body["data"]["attributes"]["email"],
        "mailjet-create-contact": lambda body: body["Email"],
        "mailjet-update-contact-list": lambda body: body["Email"],
        "sendgrid": lambda body: body["contacts"][0]["email"],
        "zendesk": lambda body: body["user"]["email"],
        "mailchimp": lambda body: body["email_address"],
    }
    for folder, email_of in bodies.items():
        inputs = {"email": address, "properties": {}, "metadata": {}, "attributes": {}, "apiKey": "k-us1"}
        assert email_of(sent(folder, inputs)) == "Ann@Example.com", folder


def test_a_click_id_becomes_the_parameter_of_metas_cookie() -> None:
    user = sent("meta-ads", {"userData": {}}, {"fbclid": "IwAR2F4"})["data"][0]["user_data"]
    assert user["fbc"] == "fb.1.1767261600000.IwAR2F4"
    given = sent("meta-ads", {"userData": {"fbc": "fb.1.1.x"}}, {"fbclid": "y"})["data"][0]["user_data"]
    assert given["fbc"] == "fb.1.1.x"


def money(folder: str, value: Any, currency: Any) -> tuple[Any, Any]:
    inputs = {
        "value": value,
        "currency": currency,
        "email": "a@b.c",
        "customerId": "1",
        "conversionActionId": "2",
        "userData": {},
        "userProperties": {},
    }
    body = sent(folder, inputs)
    match folder:
        case "meta-ads":
            custom = body["data"][0].get("custom_data", {})
            return custom.get("value"), custom.get("currency")
        case "tiktok-ads":
            details = body["data"][0]["properties"]
            return details.get("value"), details.get("currency")
        case "reddit-ads":
            metadata = body["data"]["events"][0]["metadata"]
            return metadata.get("value"), metadata.get("currency")
        case "linkedin-ads":
            price = body.get("conversionValue", {})
            amount = price.get("amount")
            return None if amount is None else float(amount), price.get("currencyCode")
        case "google-ads":
            event = body["events"][0]
            return event.get("conversionValue"), event.get("currency")
    return body["data"]["attributes"].get("value"), currency


ADS = ["meta-ads", "tiktok-ads", "reddit-ads", "linkedin-ads", "google-ads", "klaviyo-event"]
AMOUNTS = [
    ("1,234.50", 1234.5), ("1234.50", 1234.5), ("1.234,50", 1234.5), ("12,5", 12.5), ("$9.99", 9.99),
    ("9.99 EUR", 9.99), (" 7 ", 7), (12.5, 12.5), (0, 0), ("-3", -3), ("1,234,567", 1234567),
    ("0x1F", None), ("Infinity", None), ("NaN", None), ("12abc", None), ("free", None), ("", None), (None, None),
    ("1e400", None),
]  # fmt: skip


@pytest.mark.parametrize("folder", ADS)
def test_money_is_a_number_or_nothing(folder: str) -> None:
    for text, amount in AMOUNTS:
        found, currency = money(folder, text, "eur")
        assert found == amount, text
        if folder != "klaviyo-event":
            assert currency == (None if amount is None else "EUR"), text


CURRENCIES = [
    ("9.99", "eur", "EUR"), ("9.99", " Gbp ", "GBP"), ("9.99", None, "USD"), ("9.99", "", "USD"), (9.99, None, "USD"),
    ("9.99 EUR", None, "EUR"), ("€9.99", "", "EUR"), ("£9.99", None, "GBP"), ("$9.99", None, "USD"),
    ("9.99", "€", "EUR"), ("9.99", "$", "USD"), ("€9.99", "chf", "CHF"),
    ("9.99", "euros", None), ("9.99", "¥", None), ("¥9", None, None), ("9.99", 978, None),
]  # fmt: skip
"""Amounts and currencies as they are given, and what is sent: without a known currency no amount, either."""


@pytest.mark.parametrize("folder", [folder for folder in ADS if folder != "klaviyo-event"])
def test_an_amount_is_sent_in_its_own_currency_or_not_at_all(folder: str) -> None:
    for text, given, currency in CURRENCIES:
        amount, found = money(folder, text, given)
        assert found == currency, (text, given)
        assert (amount is None) == (currency is None), (text, given)


def test_an_event_id_of_customerio_is_a_ulid() -> None:
    inputs = {"action": "event", "identifiers": {"id": "1"}}
    ulid = sent("customerio", inputs)["id"]
    alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
    number = 0
    for digit in ulid:
        number = number * 32 + alphabet.index(digit)
    assert (len(ulid), UUID(int=number)) == (26, UUID(EVENT["uuid"]))


def test_an_id_of_linear_is_of_version_4() -> None:
    found = UUID(sent("linear", {"team_id": "t", "title": "x"})["variables"]["input"]["id"])
    assert (found.version, found.variant) == (4, "specified in RFC 4122")


def test_braze_gets_no_names_with_dollar_signs() -> None:
    inputs = {
        "externalId": "u",
        "brazeEndpoint": "https://b.example",
        "attributes": {"$ip": "1", "plan": "pro", "deep": {"$x": 1, "y": [{"$z": 1, "a": 2}]}},
        "event": {"name": "e", "properties": {"$current_url": "x", "plan": "pro"}},
    }
    body = sent("braze", inputs)
    assert body["attributes"] == [{"plan": "pro", "deep": {"y": [{"a": 2}]}, "external_id": "u"}]
    assert body["events"][0]["properties"] == {"plan": "pro"}


def test_the_field_that_finds_a_record_is_not_written() -> None:
    inputs = {
        "externalId": "1",
        "externalIdField": "Mail__c",
        "object": "Contact",
        "properties": {"Mail__c": "1", "Name": "Ann"},
    }
    assert sent("salesforce-update", inputs) == {"Name": "Ann"}


def test_chats_are_not_called_by_texts_of_events() -> None:
    text = "<!channel> <@U1> <https://a.example|a>"
    inputs = {"bot_token": "t", "channel": "C", "text": text, "blocks": [{"text": {"text": text}}]}
    safe = "&lt;!channel> &lt;@U1> <https://a.example|a>"
    body = sent("slack", inputs)
    assert (body["text"], body["blocks"][0]["text"]["text"]) == (safe, safe)
    assert sent("slack", {**inputs, "mentions": True})["text"] == text
    assert sent("discord", {"content": "@everyone"})["allowed_mentions"] == {"parse": []}
