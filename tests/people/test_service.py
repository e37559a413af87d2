"""What batches of events do to persons and groups (spec: sdk-wire 1.11, 1.13, 1.14)."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import orjson
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.generated import examples

from hoglab.people import PersonService, derived_person_id
from hoglab.people.service import Applied
from hoglab.storage.database import Database
from hoglab.storage.database.tables import (
    cohort,
    cohort_person,
    feature_flag,
    flag_hash_key_override,
    group,
    ingestion_progress,
    ingestion_warning,
    person,
    person_distinct_id,
    person_override,
)
from hoglab.storage.event_store import PersonOverride

NOW = datetime.fromisoformat("2026-11-21T12:00:00+00:00")
EARLIER = NOW - timedelta(hours=5)


@dataclass
class Event:
    event: str
    distinct_id: str
    properties: dict[str, Any] = field(default_factory=dict)
    timestamp: datetime = NOW
    project_id: int = 1
    log_offset: int = 0
    uuid: UUID = field(default_factory=uuid4)


def identify(anonymous: Any, user: str, **properties: Any) -> Event:
    return Event("$identify", user, {"$anon_distinct_id": anonymous, **properties})


def merge(other: str, into: str) -> Event:
    return Event("$merge_dangerously", into, {"alias": other})


def personless(event: str, distinct_id: str, at: datetime = NOW, **properties: Any) -> Event:
    return Event(event, distinct_id, {"$process_person_profile": False, **properties}, at)


def apply(service: PersonService, offset: int, *events: Event) -> Applied:
    for event in events:
        event.log_offset = offset
    return service.apply(list(events), log_offset=offset)


class People:
    """Applies events, one batch or one batch for each, and reads back."""

    def __init__(self, database: Database, service: PersonService, *, batched: bool) -> None:
        self.database = database
        self.service = service
        self.batched = batched
        self.offset = 0

    def send(self, *events: Event) -> Applied:
        batches = [list(events)] if self.batched else [[event] for event in events]
        results = []
        for batch in batches:
            self.offset += 1
            for event in batch:
                event.log_offset = self.offset
            results.append(self.service.apply(batch, log_offset=self.offset))
        return Applied(
            [each for result in results for each in result.attributions],
            [each for result in results for each in result.overrides],
        )

    def uuid(self, distinct_id: str, project_id: int = 1) -> UUID | None:
        view = self.service.person_for(project_id, distinct_id)
        return view.uuid if view else None

    def properties(self, distinct_id: str) -> dict[str, Any]:
        view = self.service.person_for(1, distinct_id)
        assert view is not None
        return view.properties

    def rows(self, table: sa.Table) -> list[Any]:
        with self.database.read() as connection:
            return list(connection.execute(sa.select(table)))

    def warnings(self) -> list[str]:
        return [row.type for row in self.rows(ingestion_warning)]

    def resolved(self, uuid: UUID) -> UUID:
        """Where events stored under a person id belong after all merges."""
        known = {each.old_person_id: each.person_id for each in self.service.overrides_after(0)}
        return known.get(uuid, uuid)


@pytest.fixture(params=[True, False], ids=["one batch", "one by one"])
def people(request: pytest.FixtureRequest, database: Database, people: PersonService) -> People:
    return People(database, people, batched=request.param)


def test_an_event_makes_a_person(people: People) -> None:
    applied = people.send(Event("e", "u", {"$set": {"a": 1}}), Event("e", "u", {"$set": {"b": 2}}))
    first, second = applied.attributions
    assert first is not None
    assert second is not None
    assert first.person.person_id == second.person.person_id == derived_person_id(1, "u") == people.uuid("u")
    assert orjson.loads(first.person.properties) == {"a": 1}
    assert orjson.loads(second.person.properties) == people.properties("u") == {"a": 1, "b": 2}
    assert (first.person.mode, first.person.created_at) == ("full", NOW)
    assert applied.overrides == []
    view = people.service.person_for(1, "u")
    assert view is not None
    assert (view.is_identified, view.created_at, view.last_seen_at) == (False, NOW, NOW)


def test_row_ids_of_persons_that_are_gone_are_never_given_again(people: People) -> None:
    people.send(Event("e", "a"), Event("e", "b"))
    before = {row.distinct_id: row.person_id for row in people.rows(person_distinct_id)}
    with people.database.write() as tx:
        tx.execute(sa.delete(person).where(person.c.id == before["b"]))
    people.send(Event("e", "b"), Event("e", "c"))
    after = {row.distinct_id: row.person_id for row in people.rows(person_distinct_id)}
    assert after["a"] == before["a"]
    assert before["b"] < after["b"] < after["c"]
    assert {row.id for row in people.rows(person)} == set(after.values())


def test_projects_do_not_share_persons(people: People) -> None:
    people.send(Event("e", "u"), Event("e", "u", project_id=2))
    assert people.uuid("u", 1) == derived_person_id(1, "u")
    assert people.uuid("u", 2) == derived_person_id(2, "u")


def test_personless_events_leave_no_person(people: People) -> None:
    event = personless("e", "u", **{"$set": {"a": 1}, "$set_once": {"b": 1}, "$unset": ["c"], "x": 1})
    attribution = people.send(event).attributions[0]
    assert attribution is not None
    assert attribution.person.person_id == derived_person_id(1, "u")
    assert (attribution.person.mode, attribution.person.properties) == ("propertyless", b"{}")
    assert attribution.person.created_at is None
    assert event.properties == {"$process_person_profile": False, "x": 1}
    assert people.rows(person) == []


@pytest.mark.parametrize("event", ["$identify", "$create_alias", "$merge_dangerously", "$groupidentify"])
def test_events_that_need_a_person_are_dropped_without_one(people: People, event: str) -> None:
    applied = people.send(personless(event, "u", alias="b", **{"$anon_distinct_id": "a"}))
    assert applied.attributions == [None]
    assert people.warnings() == ["invalid_event_when_process_person_profile_is_false"]
    assert people.rows(person) == []


def test_a_person_older_than_a_minute_takes_personless_events(people: People) -> None:
    people.send(Event("e", "u", {"$set": {"a": 1}}, NOW))
    at_once, later = people.send(
        personless("e", "u", NOW + timedelta(seconds=60)), personless("e", "u", NOW + timedelta(seconds=61))
    ).attributions
    assert at_once is not None
    assert later is not None
    assert (at_once.person.mode, at_once.person.properties) == ("propertyless", b"{}")
    assert (later.person.mode, later.person.properties) == ("force_upgrade", b'{"a":1}')
    assert later.person.person_id == people.uuid("u")


@pytest.mark.parametrize("value", ["false", None, 0])
def test_other_choices_count_as_true_with_a_warning(people: People, value: Any) -> None:
    people.send(Event("e", "u", {"$process_person_profile": value}))
    assert people.uuid("u") is not None
    assert people.warnings() == ["invalid_process_person_profile"]


def test_identify_merges_the_anonymous_person(people: People) -> None:
    applied = people.send(
        Event("e", "anon", {"$set": {"a": 1, "b": 1}}, EARLIER),
        Event("e", "user", {"$set": {"b": 2}}),
        identify("anon", "user", **{"$set": {"c": 3}, "$set_once": {"a": 9}}),
    )
    survivor = derived_person_id(1, "user")
    assert people.uuid("anon") == people.uuid("user") == survivor
    assert people.properties("anon") == {"a": 1, "b": 2, "c": 3}
    view = people.service.person_for(1, "user")
    assert view is not None
    assert (view.is_identified, view.created_at) == (True, EARLIER)
    assert len(people.rows(person)) == 1
    assert applied.overrides == [PersonOverride(1, derived_person_id(1, "anon"), survivor)]
    assert people.resolved(derived_person_id(1, "anon")) == survivor
    last = applied.attributions[-1]
    assert last is not None
    assert last.person.person_id == survivor


def test_identify_attaches_an_id_without_a_person(people: People) -> None:
    applied = people.send(personless("e", "anon"), Event("e", "user"), identify("anon", "user"))
    survivor = derived_person_id(1, "user")
    assert people.uuid("anon") == survivor
    # The anonymous events are stored under the derived id.
    assert applied.overrides == [PersonOverride(1, derived_person_id(1, "anon"), survivor)]


def test_identify_as_somebody_new_keeps_the_anonymous_person(people: People) -> None:
    people.send(Event("e", "anon", {"$set": {"a": 1}}), identify("anon", "user"))
    assert people.uuid("anon") == people.uuid("user") == derived_person_id(1, "anon")
    assert people.resolved(derived_person_id(1, "user")) == derived_person_id(1, "anon")
    view = people.service.person_for(1, "user")
    assert view is not None
    assert view.is_identified


def test_identify_of_two_unknown_ids_makes_one_person(people: People) -> None:
    people.send(identify("anon", "user", **{"$set": {"a": 1}}))
    assert people.uuid("anon") == people.uuid("user") == derived_person_id(1, "user")
    assert people.properties("user") == {"a": 1}
    assert len(people.rows(person)) == 1
    assert len(people.rows(person_distinct_id)) == 2


def test_identify_without_an_anonymous_id_only_sets(people: People) -> None:
    people.send(Event("$identify", "user", {"$set": {"a": 1}}))
    view = people.service.person_for(1, "user")
    assert view is not None
    assert (view.properties, view.is_identified) == ({"a": 1}, False)


def test_identified_persons_are_not_merged_away(people: People) -> None:
    people.send(
        identify("a1", "user-a", **{"$set": {"who": "a"}}),
        identify("b1", "user-b", **{"$set": {"who": "b"}}),
        identify("user-a", "user-b"),
    )
    assert people.uuid("user-a") != people.uuid("user-b")
    assert people.warnings() == ["cannot_merge_already_identified"]


def test_merge_dangerously_merges_whom_identify_refuses(people: People) -> None:
    people.send(
        identify("a1", "user-a", **{"$set": {"who": "a", "only": 1}}),
        identify("b1", "user-b", **{"$set": {"who": "b"}}),
        Event("$merge_dangerously", "user-b", {"alias": "user-a"}),
    )
    assert {people.uuid(each) for each in ("user-a", "a1", "b1")} == {people.uuid("user-b")}
    assert people.properties("a1") == {"who": "b", "only": 1}
    assert people.warnings() == []


def test_alias_merges_the_alias_into_the_distinct_id(people: People) -> None:
    people.send(Event("e", "u1"), Event("$create_alias", "anon1", {"alias": "u1"}))
    assert people.uuid("u1") == people.uuid("anon1") == derived_person_id(1, "u1")


@pytest.mark.parametrize("alias", [None, "", False, 0])
def test_alias_without_an_alias_merges_nothing(people: People, alias: Any) -> None:
    people.send(Event("$create_alias", "u", {"alias": alias}))
    assert [row.distinct_id for row in people.rows(person_distinct_id)] == ["u"]
    assert people.warnings() == []


@pytest.mark.parametrize(("anonymous", "user"), [("null", "user"), ("anon", "Anonymous"), ("", "user")])
def test_illegal_ids_are_not_merged(people: People, anonymous: str, user: str) -> None:
    applied = people.send(
        Event("e", "anon"), Event("e", user), identify(anonymous, user, **{"$set": {"a": 1}})
    )
    assert None not in applied.attributions
    assert people.uuid("anon") != people.uuid(user)
    assert people.properties(user) == {"a": 1}
    assert people.warnings() == ["cannot_merge_with_illegal_distinct_id"]
    assert applied.overrides == []


def test_merging_with_oneself_does_nothing(people: People) -> None:
    people.send(identify("u", "u"))
    view = people.service.person_for(1, "u")
    assert view is not None
    assert not view.is_identified


def test_overrides_follow_chains_of_merges(people: People) -> None:
    people.send(
        Event("e", "a"),
        Event("e", "b"),
        Event("e", "c"),
        Event("$merge_dangerously", "b", {"alias": "a"}),
        Event("$merge_dangerously", "c", {"alias": "b"}),
    )
    survivor = derived_person_id(1, "c")
    assert people.resolved(derived_person_id(1, "a")) == survivor
    assert people.resolved(derived_person_id(1, "b")) == survivor
    assert {people.uuid(each) for each in "abc"} == {survivor}


def test_what_belongs_to_a_merged_person_moves(people: People) -> None:
    people.send(Event("e", "anon"), Event("e", "user"))
    with people.database.write() as tx:
        rows = {row.uuid: row.id for row in tx.execute(sa.select(person))}
        anon, user = rows[str(derived_person_id(1, "anon"))], rows[str(derived_person_id(1, "user"))]
        for number in (1, 2):
            tx.execute(sa.insert(cohort), {"id": number, "project_id": 1, "groups": [], "created_at": NOW})
            tx.execute(sa.insert(cohort_person), {"cohort_id": number, "person_id": anon})
        tx.execute(sa.insert(cohort_person), {"cohort_id": 2, "person_id": user})
        for key, owner, hash_key in (("f", anon, "anon"), ("g", anon, "anon"), ("g", user, "user")):
            row = {"project_id": 1, "person_id": owner, "feature_flag_key": key, "hash_key": hash_key}
            tx.execute(sa.insert(flag_hash_key_override), row)
    people.send(identify("anon", "user"))
    assert sorted((row.cohort_id, row.person_id) for row in people.rows(cohort_person)) == [
        (1, user),
        (2, user),
    ]
    kept = {
        (row.feature_flag_key, row.person_id): row.hash_key for row in people.rows(flag_hash_key_override)
    }
    assert kept == {("f", user): "anon", ("g", user): "user"}
    assert people.rows(feature_flag) == []


def test_properties_that_grow_too_large_are_refused(people: People) -> None:
    people.send(
        Event("$set", "u", {"$set": {"a": "x" * 600_000}}),
        Event("$set", "u", {"$set": {"b": "x" * 100_000}}),
        Event("$set", "u", {"$set": {"c": 1}}),
    )
    assert people.properties("u").keys() == {"a", "c"}
    assert people.warnings() == ["person_properties_size_violation"]


def test_volatile_changes_are_seen_by_the_event_but_not_written(people: People) -> None:
    people.send(Event("$pageview", "u", {"$current_url": "/1"}))
    attribution = people.send(Event("$pageview", "u", {"$current_url": "/2"})).attributions[0]
    assert attribution is not None
    assert orjson.loads(attribution.person.properties)["$current_url"] == "/2"
    assert people.properties("u")["$current_url"] == "/1"
    assert people.properties("u")["$initial_current_url"] == "/1"


def test_warnings_are_written_once_for_an_event(people: People) -> None:
    event = identify("null", "user")
    people.send(event)
    people.send(event)
    assert people.warnings() == ["cannot_merge_with_illegal_distinct_id"]


# --- groups


def test_groups(people: People) -> None:
    named = {"$group_type": "company", "$group_key": "acme"}
    first = Event("e", "u", {"$groups": {"company": "acme", "team": "red", "bad": None, "seat": 7}})
    second = Event(
        "$groupidentify",
        "u",
        {**named, "$group_set": {"name": "Acme", "n": 1}, "$set": {"x": 1}},
    )
    third = Event(
        "$groupidentify", "u", {"$group_type": "company", "$group_key": "acme", "$group_set": {"n": 2}}
    )
    attribution = people.send(first, second, third).attributions[0]
    assert attribution is not None
    assert attribution.groups == {0: "acme", 1: "red", 2: "7"}
    assert (first.properties["$group_0"], first.properties["$group_2"]) == ("acme", "7")
    assert people.service.group_types(1) == {"company": 0, "team": 1, "seat": 2}
    assert people.service.group_types(2) == {}
    assert people.service.group_properties(1, 0, "acme") == {"name": "Acme", "n": 2}
    assert people.service.group_properties(1, 1, "red") is None
    assert people.properties("u") == {}  # $groupidentify does not set person properties


def test_a_sixth_group_type_is_ignored(people: People) -> None:
    names = [f"type-{number}" for number in range(7)]
    events = [Event("e", "u", {"$groups": {name: "k"}}) for name in names]
    applied = people.send(*events)
    assert people.service.group_types(1) == {name: index for index, name in enumerate(names[:5])}
    assert [each.groups for each in applied.attributions if each][5:] == [{}, {}]
    assert events[6].properties == {"$groups": {"type-6": "k"}}


@pytest.mark.parametrize(
    "properties",
    [
        {"$group_type": "company"},
        {"$group_key": "acme"},
        {"$group_type": 3, "$group_key": "acme"},
        {"$group_type": "", "$group_key": "acme"},
        {"$group_type": "company", "$group_key": "k" * 500},
        {"$group_type": "company", "$group_key": {"a": 1}},
    ],
)
def test_group_events_that_name_no_group(people: People, properties: dict[str, Any]) -> None:
    people.send(Event("$groupidentify", "u", properties))
    assert people.rows(group) == []


def test_groups_that_grow_too_large_stay_as_they_are(people: People) -> None:
    named = {"$group_type": "company", "$group_key": "acme"}
    people.send(Event("$groupidentify", "u", {**named, "$group_set": {"a": 1}}))
    people.send(Event("$groupidentify", "u", {**named, "$group_set": {"b": "x" * 700_000}}))
    assert people.service.group_properties(1, 0, "acme") == {"a": 1}
    assert people.warnings() == ["group_properties_size_violation"]


def test_old_warnings_are_forgotten(database: Database) -> None:
    clock = [NOW - timedelta(days=31)]
    service = PersonService(database, now=lambda: clock[0])
    apply(service, 1, identify("null", "a"))
    clock[0] = NOW
    apply(service, 2, identify("null", "b"))
    assert service.forget_old_warnings() == 1
    with database.read() as connection:
        assert len(list(connection.execute(sa.select(ingestion_warning)))) == 1


def test_only_overrides_of_later_records_are_given_again(database: Database) -> None:
    service = PersonService(database, now=lambda: NOW)
    apply(service, 5, Event("e", "a"), Event("e", "b"), merge("a", "b"))
    apply(service, 9, Event("e", "c"), merge("b", "c"))
    a, b, c = (derived_person_id(1, each) for each in "abc")
    assert set(service.overrides_after(5)) == {PersonOverride(1, a, c), PersonOverride(1, b, c)}
    assert service.overrides_after(9) == []


def test_a_batch_that_was_applied_is_only_attributed_again(people: People) -> None:
    events = [
        Event("e", "a", {"$set": {"x": 1}}),
        Event("e", "b", {"$set": {"x": 0}}),
        identify("b", "a"),
        personless("$identify", "c"),
        personless("e", "c"),
        Event("e", "null", {"$process_person_profile": 1}),
        Event("$groupidentify", "g", {"$group_type": "t", "$group_key": "k", "$set": {"x": 1}}),
        Event("e", "a", {"$groups": {"t": "k"}}),
    ]
    first = people.send(*copy.deepcopy(events))
    people.offset = 0
    again = people.send(*copy.deepcopy(events))
    assert [each and each.person.mode for each in again.attributions] == [
        each and each.person.mode for each in first.attributions
    ]
    assert [each and each.groups for each in again.attributions] == [
        each and each.groups for each in first.attributions
    ]
    assert again.attributions[1].person.person_id == people.uuid("a")  # type: ignore[union-attr]
    assert people.properties("a") == {"x": 1}
    assert again.overrides == []
    assert len(people.warnings()) == 2
    with people.database.write() as tx:
        tx.execute(sa.delete(person))
    people.offset = 0
    people.send(*copy.deepcopy(events))
    assert people.properties("a") == {"x": 1}  # made anew, as it was deleted meanwhile


# --- how batches are cut does not matter, nor that one is applied again after a crash

ids = st.sampled_from(["a", "b", "c", "d", "null"])
values = st.dictionaries(st.sampled_from(["x", "y"]), st.integers(0, 3), max_size=2)
steps = st.one_of(
    st.tuples(st.just("set"), ids, ids, values),
    st.tuples(st.just("set_once"), ids, ids, values),
    st.tuples(st.just("identify"), ids, ids, values),
    st.tuples(st.just("merge"), ids, ids, values),
)


def made(step: tuple[str, str, str, dict[str, int]], number: int) -> Event:
    kind, one, other, properties = step
    if kind == "identify":
        event = identify(one, other, **{"$set": properties})
    elif kind == "merge":
        event = merge(one, other)
    else:
        event = Event("e", one, {f"${kind}": properties})
    event.uuid = UUID(int=number)
    return event


def outcome(database: Database, service: PersonService) -> Any:
    persons = {each: service.person_for(1, each) for each in ("a", "b", "c", "d", "null")}
    seen = {
        each: view and (view.uuid, view.properties, view.is_identified, view.created_at)
        for each, view in persons.items()
    }
    with database.read() as connection:
        warned = {(row.type, row.event_uuid) for row in connection.execute(sa.select(ingestion_warning))}
    return seen, set(service.overrides_after(0)), warned


@settings(
    max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(steps, max_size=12), st.integers(1, 4))
def test_batches_may_be_cut_anywhere_and_applied_again(
    database: Database, script: list[tuple[str, str, str, dict[str, int]]], size: int
) -> None:
    service = PersonService(database, now=lambda: NOW)
    results = []
    for cut, repeat in ((1, 1), (size, 1), (max(len(script), 1), 1), (size, 2)):
        with database.write() as tx:
            for table in (person_override, ingestion_warning, ingestion_progress, person):
                tx.execute(sa.delete(table))
        for offset, start in enumerate(range(0, len(script), cut)):
            for _ in range(repeat):
                part = script[start : start + cut]
                events = [made(step, start + index) for index, step in enumerate(part)]
                applied = apply(service, offset + 1, *events)
                assert None not in applied.attributions
        results.append(outcome(database, service))
    assert results[0] == results[1] == results[2] == results[3]
