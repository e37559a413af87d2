"""The cohorts API and what cohorts do to flags (spec: experiments-api 7.4, sdk-wire 3.9)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.waiting import PATIENCE_S

from hoglab.people.cohorts import calculation, members
from hoglab.people.cohorts import service as service_module

URL = "/api/projects/1/cohorts/"
PRO = {"key": "plan", "type": "person", "value": ["pro"], "operator": "exact"}
GERMAN = {"key": "country", "type": "person", "value": "DE", "operator": "exact"}


def tree(*values: Any, kind: str = "AND") -> dict[str, Any]:
    return {"properties": {"type": kind, "values": list(values)}}


def inside(cohort_id: Any, **more: Any) -> dict[str, Any]:
    return {"key": "id", "type": "cohort", "value": cohort_id, **more}


def create(server, name="Pro", **more):
    answer = server.client.post(URL, json={"name": name, **more})
    assert answer.status_code == 201, answer.text
    return answer.json()


def read(server, cohort_id):
    answer = server.client.get(f"{URL}{cohort_id}/")
    assert answer.status_code == 200, answer.text
    return answer.json()


def names(server, cohort_id):
    """The first distinct id of each member, by the API."""
    answer = server.client.get(f"{URL}{cohort_id}/persons/?limit=1000")
    assert answer.status_code == 200, answer.text
    assert answer.json()["count"] == len(answer.json()["results"])
    return {person["distinct_ids"][0] for person in answer.json()["results"]}


def refuse(server, body, *, detail, attr="filters", code="invalid_input"):
    answer = server.client.post(URL, json=body)
    assert answer.status_code == 400, answer.text
    assert detail in answer.json()["detail"]
    assert (answer.json()["attr"], answer.json()["code"]) == (attr, code)


@pytest.fixture
def people(server):
    """Four people: two pro, two German, one of them both, one nothing."""
    for name, properties in {
        "ann": {"plan": "pro", "country": "de"},
        "bob": {"plan": "pro", "country": "fr"},
        "cem": {"plan": "free", "country": "DE"},
        "dot": {},
    }.items():
        server.event("$set", name, **{"$set": properties})
    return server


class TestRepresentation:
    def test_a_new_dynamic_cohort_waits_for_its_members(self, server):
        made = create(server, description="Paying", filters=tree(PRO))
        assert ", ".join(made) == (
            "id, name, description, groups, deleted, filters, query, is_calculating, created_by, created_at, "
            "last_calculation, errors_calculating, last_error_message, count, is_static, cohort_type, "
            "experiment_set, version, pending_version"
        )
        assert made["is_calculating"] is True
        assert made["count"] is made["last_calculation"] is made["version"] is None
        assert (made["groups"], made["deleted"], made["query"], made["is_static"]) == ([], False, None, False)
        assert made["filters"] == tree(PRO)
        assert made["created_by"]["id"] == 1

    def test_no_old_rules_may_be_said_by_null(self, server):
        made = create(server, groups=None, filters=tree(PRO))
        assert made["groups"] == []

    def test_list_newest_first_with_filters(self, server):
        create(server, "Alpha", filters=tree(PRO))
        static = create(server, "Beta", is_static=True)
        create(server, "Alphabet", filters=tree(PRO))

        def listed(query: str) -> list[str]:
            answer = server.client.get(URL + query).json()
            assert answer["count"] >= len(answer["results"])
            return [each["name"] for each in answer["results"]]

        assert listed("") == ["Alphabet", "Beta", "Alpha"]
        assert listed("?search=alpha") == ["Alphabet", "Alpha"]
        assert listed("?is_static=true") == ["Beta"]
        assert listed("?limit=1&offset=1") == ["Beta"]
        assert listed("?created_by_id=77") == []
        server.client.patch(f"{URL}{static['id']}/", json={"deleted": True})
        assert listed("") == ["Alphabet", "Alpha"]

    def test_experiments_of_an_exposure_cohort(self, server):
        made = create(server, filters=tree(PRO))
        assert made["experiment_set"] == []

    def test_activity_tells_what_changed(self, server):
        made = create(server, filters=tree(PRO))
        server.client.patch(f"{URL}{made['id']}/", json={"name": "Payers"})
        with server.database.read() as connection:
            rows = connection.exec_driver_sql(
                "SELECT activity, detail FROM activity_log WHERE scope = 'Cohort' ORDER BY created_at"
            ).all()
        assert [row[0] for row in rows] == ["created", "updated"]
        assert '"after":"Payers"' in rows[1][1].replace(" ", "")


class TestDynamic:
    def test_members_are_found_in_the_background(self, people):
        server = people
        made = create(server, filters=tree(PRO, GERMAN, kind="OR"))
        assert server.calculator.run() == 1
        after = read(server, made["id"])
        assert (after["count"], after["is_calculating"], after["version"]) == (3, False, 1)
        assert after["last_calculation"] is not None
        assert names(server, made["id"]) == {"ann", "bob", "cem"}
        assert server.calculator.run() == 0

    def test_groups_nest_and_leaves_may_be_negated(self, people):
        german_not_pro = {"type": "AND", "values": [GERMAN, {**PRO, "negation": True}]}
        made = create(people, filters=tree(german_not_pro, {**GERMAN, "value": "fr"}, kind="OR"))
        people.calculator.run()
        assert names(people, made["id"]) == {"cem", "bob"}

    def test_an_empty_definition_is_everybody(self, people):
        made = create(people, filters=tree())
        people.calculator.run()
        assert read(people, made["id"])["count"] == 4

    def test_a_change_of_filters_is_calculated_anew(self, people):
        made = create(people, filters=tree(PRO))
        people.calculator.run()
        changed = people.client.patch(f"{URL}{made['id']}/", json={"filters": tree(GERMAN)}).json()
        assert changed["is_calculating"] is True
        assert names(people, made["id"]) == {"ann", "bob"}, (
            "the old members stay until the new ones are known"
        )
        people.calculator.run()
        assert names(people, made["id"]) == {"ann", "cem"}
        assert read(people, made["id"])["version"] == 2

    def test_other_changes_are_not(self, people):
        made = create(people, filters=tree(PRO))
        people.calculator.run()
        people.client.patch(f"{URL}{made['id']}/", json={"name": "Payers", "filters": tree(PRO)})
        assert people.calculator.run() == 0

    def test_cohorts_of_cohorts_follow(self, people):
        static = create(people, "Chosen", is_static=True, _create_static_distinct_ids=["dot"])
        pro = create(people, filters=tree(PRO))
        both = create(people, filters=tree(inside(static["id"]), inside(pro["id"]), kind="OR"))
        others = create(people, filters=tree(inside(both["id"], operator="not_in")))
        people.calculator.run()
        assert names(people, both["id"]) == {"ann", "bob", "dot"}
        assert names(people, others["id"]) == {"cem"}
        people.client.patch(f"{URL}{pro['id']}/", json={"filters": tree(GERMAN)})
        people.client.patch(
            f"{URL}{static['id']}/remove_persons_from_static_cohort/", json={"distinct_ids": ["dot"]}
        )
        people.calculator.run()
        assert names(people, both["id"]) == {"ann", "cem"}
        assert names(people, others["id"]) == {"bob", "dot"}

    def test_members_are_those_for_whom_a_flag_is_on(self, people):
        """The list of members and the evaluation of a request must not disagree."""
        cases = [
            PRO,
            {**GERMAN, "operator": "is_not"},
            {"key": "country", "type": "person", "operator": "is_not_set", "value": None},
            {"key": "plan", "type": "person", "operator": "regex", "value": "^p"},
            {
                "key": "created_at",
                "type": "person_metadata",
                "operator": "is_date_before",
                "value": "2030-01-01",
            },
            {**PRO, "negation": True},
        ]
        for number, leaf in enumerate(cases):
            made = create(people, f"Case {number}", filters=tree(leaf))
            people.create(f"flag-{number}", {"groups": [{"properties": [inside(made["id"])]}]})
            people.calculator.run()
            on = {
                name
                for name in ("ann", "bob", "cem", "dot")
                if people.flags(name)["flags"][f"flag-{number}"]["enabled"]
            }
            assert names(people, made["id"]) == on, leaf

    def test_a_cohort_that_is_old_is_calculated_again(self, people, monkeypatch):
        made = create(people, filters=tree(PRO))
        people.calculator.start()
        try:
            wait_until(lambda: read(people, made["id"])["version"] == 1)
            people.event("$set", "eve", **{"$set": {"plan": "pro"}})
            monkeypatch.setattr(calculation, "REFRESH_AFTER", calculation.timedelta(0))
            people.client.patch(f"{URL}{made['id']}/", json={"name": "Wakes the calculator"})
            wait_until(lambda: read(people, made["id"])["count"] == 3)
        finally:
            people.calculator.stop()

    def test_what_cannot_be_calculated_says_so(self, people):
        behaviour = {
            "type": "behavioral", "value": "performed_event", "key": "paid", "event_type": "events",
        }  # fmt: skip
        made = create(people, filters=tree(behaviour))
        people.calculator.run()
        after = read(people, made["id"])
        assert (after["errors_calculating"], after["is_calculating"], after["count"]) == (1, False, None)
        assert "behaviour" in after["last_error_message"]

    def test_behaviour_is_asked_from_who_knows_it(self, people):
        asked = []

        def behaviour(project, leaf):
            asked.append((project.id, leaf.key, leaf.extra["event_type"]))
            with people.database.read() as connection:
                found = connection.exec_driver_sql("SELECT uuid FROM person ORDER BY id LIMIT 2").scalars()
                return [*found, "00000000-0000-0000-0000-000000000000"]

        leaf = {"type": "behavioral", "value": "performed_event", "key": "paid", "event_type": "events"}
        made = create(people, filters=tree(leaf, GERMAN))
        calculation.CohortCalculator(people.database, behaviour=behaviour).run()
        assert asked == [(1, "paid", "events")]
        assert names(people, made["id"]) == {"ann"}


def wait_until(done) -> None:
    import time

    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class TestStatic:
    def test_from_persons_and_distinct_ids(self, people):
        persons = people.client.get(f"{URL}{create(people, filters=tree())['id']}/").json()
        assert persons["count"] is None
        with people.database.read() as connection:
            uuids = list(connection.exec_driver_sql("SELECT uuid FROM person ORDER BY id").scalars())
        made = create(
            people,
            "Chosen",
            is_static=True,
            _create_static_person_ids=[uuids[1], "00000000-0000-0000-0000-000000000000"],
            _create_static_distinct_ids=["dot", "nobody"],
        )
        assert (made["count"], made["is_calculating"], made["is_static"]) == (2, False, True)
        assert names(people, made["id"]) == {"bob", "dot"}

    def test_the_version_grows_with_every_change_of_members(self, people):
        made = create(people, "Chosen", is_static=True, _create_static_distinct_ids=["ann"])
        versions = [made["version"]]
        for how, who in [
            ("add_persons_to", "ann"),
            ("add_persons_to", "bob"),
            ("remove_persons_from", "cem"),
            ("remove_persons_from", "ann"),
        ]:
            path = f"{URL}{made['id']}/{how}_static_cohort/"
            answer = people.client.patch(path, json={"distinct_ids": [who]}).json()
            assert answer["version"] == answer["pending_version"]
            versions.append(answer["version"])
        assert versions == [1, 1, 2, 2, 3]
        assert create(people, "Empty", is_static=True)["version"] == 1

    @pytest.mark.parametrize(
        "text",
        [
            "ann\nnobody\ncem\n",
            "distinct_id\nann\ncem\n",
            "\ufeffname,Distinct-ID\nAnn,ann\n\nCem,cem\n",
            'distinct_id,note\n"ann","a, b"\ncem\n',
            "distinct_id\r\nann\r\ncem\r\n",
        ],
    )
    def test_from_a_file(self, people, text):
        answer = people.client.post(
            URL, data={"name": "Uploaded", "is_static": "true"}, files={"csv": ("people.csv", text.encode())}
        )
        assert answer.status_code == 201, answer.text
        assert answer.json()["count"] == 2
        assert names(people, answer.json()["id"]) == {"ann", "cem"}

    @pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
    @pytest.mark.parametrize(
        "header",
        [
            "person_id",
            "Person .id",
            "Person.id",
            "person id",
            "PERSON-ID",
            '"Person .id"',
            "distinct_id",
            "Distinct ID",
        ],
    )
    @pytest.mark.parametrize("columns", [["#"], ["#", "name"], ["name", "#"], ["a", "#", "name"]])
    def test_delimiters_and_headers(self, people, delimiter, header, columns):
        with people.database.read() as connection:
            uuids = list(connection.exec_driver_sql("SELECT uuid FROM person ORDER BY id").scalars())
        ids = uuids if header.strip('"').lower().startswith("person") else ["ann", "bob"]
        rows = [[header if name == "#" else name for name in columns]]
        rows += [[member if name == "#" else "x, y" for name in columns] for member in ids[:2]]
        quoted = [[f'"{cell}"' if delimiter in cell else cell for cell in row] for row in rows]
        text = "".join(delimiter.join(row) + "\r\n" for row in quoted)
        made = create(people, "Uploaded", is_static=True)
        answer = people.client.patch(f"{URL}{made['id']}/", data={}, files={"csv": ("x.csv", text.encode())})
        assert answer.status_code == 200, answer.text
        assert names(people, made["id"]) == {"ann", "bob"}

    def test_ids_of_a_single_column_may_have_delimiters(self, people):
        people.event("$set", "a;b", **{"$set": {}})
        answer = people.client.post(
            URL, data={"name": "Uploaded", "is_static": "true"}, files={"csv": ("x.csv", b"a;b\nann\n")}
        )
        assert names(people, answer.json()["id"]) == {"a;b", "ann"}

    @pytest.mark.parametrize(
        "text",
        [
            "email\nANN@example.com\nnobody@example.com\ncem@example.com\n",
            "Name,Email\nAnn,ann@example.com\nCem, Cem@Example.com\n",
        ],
    )
    def test_a_file_of_emails(self, people, text):
        for name, email in {"ann": "ann@example.com", "cem": "Cem@example.com", "dot": 7}.items():
            people.event("$set", name, **{"$set": {"email": email}})
        answer = people.client.post(
            URL, data={"name": "Uploaded", "is_static": "true"}, files={"csv": ("people.csv", text.encode())}
        )
        assert answer.status_code == 201, answer.text
        assert answer.json()["count"] == 2
        assert names(people, answer.json()["id"]) == {"ann", "cem"}

    def test_a_file_of_person_ids(self, people):
        with people.database.read() as connection:
            uuid = connection.exec_driver_sql("SELECT uuid FROM person ORDER BY id").scalars().first()
        made = create(people, "Uploaded", is_static=True)
        answer = people.client.patch(
            f"{URL}{made['id']}/", data={}, files={"csv": ("x.csv", f"person_id\n{uuid}\n".encode())}
        )
        assert answer.json()["count"] == 1, answer.text

    @pytest.mark.parametrize(
        ("content", "detail"),
        [
            (b"", "empty"),
            (b"\xff\xfe\x00", "UTF-8"),
            (b"a,b\n1,2\n", "several columns"),
            (b"a;b\n1;2\n", "several columns"),
            (b"a\tb\n1\t2\n", "several columns"),
            (b"person_id\nnot-a-uuid\n", "not the UUID"),
        ],
    )
    def test_a_bad_file(self, server, content, detail):
        answer = server.client.post(
            URL, data={"name": "Uploaded", "is_static": "true"}, files={"csv": ("people.csv", content)}
        )
        assert answer.status_code == 400
        assert detail in answer.json()["detail"]
        assert server.client.get(URL).json()["count"] == 0

    def test_the_count_follows_merges_and_deletions(self, people):
        made = create(people, is_static=True, _create_static_distinct_ids=["ann", "bob", "cem"])
        assert made["count"] == 3
        people.event("$merge_dangerously", "ann", alias="bob")
        assert read(people, made["id"])["count"] == len(names(people, made["id"])) == 2
        with people.database.write() as tx:
            tx.connection.exec_driver_sql(
                "DELETE FROM person WHERE id IN (SELECT person_id FROM person_distinct_id WHERE distinct_id = 'cem')"
            )
        assert read(people, made["id"])["count"] == len(names(people, made["id"])) == 1
        (listed,) = people.client.get(URL).json()["results"]
        assert listed["count"] == 1

    def test_adding_and_taking_out(self, people):
        made = create(people, is_static=True, _create_static_distinct_ids=["ann"])
        path = f"{URL}{made['id']}"
        added = people.client.patch(
            f"{path}/add_persons_to_static_cohort/", json={"distinct_ids": ["ann", "bob", "dot"]}
        )
        assert (added.status_code, added.json()["count"]) == (200, 3)
        left = people.client.patch(
            f"{path}/remove_persons_from_static_cohort/", json={"distinct_ids": ["bob", "nobody"]}
        )
        assert left.json()["count"] == 2
        assert names(people, made["id"]) == {"ann", "dot"}

    def test_the_next_request_sees_a_new_member(self, people):
        made = create(people, is_static=True)
        people.create("club", {"groups": [{"properties": [inside(made["id"])]}]})
        assert people.flags("ann")["flags"]["club"]["enabled"] is False
        people.client.patch(
            f"{URL}{made['id']}/add_persons_to_static_cohort/", json={"distinct_ids": ["ann"]}
        )
        assert people.flags("ann")["flags"]["club"]["enabled"] is True

    def test_membership_survives_a_merge(self, people):
        made = create(people, is_static=True, _create_static_distinct_ids=["dot"])
        people.event("$identify", "ann", **{"$anon_distinct_id": "dot"})
        assert names(people, made["id"]) == {"ann"}

    def test_made_by_other_rooms(self, people):
        with people.database.read() as connection:
            uuids = list(connection.exec_driver_sql("SELECT uuid FROM person ORDER BY id").scalars())
        with people.database.write() as tx:
            row = people.cohorts.create_static(tx, people.project, None, "Exposed", uuids[:3])
        with people.database.read() as connection:
            assert [str(each) for each in members(connection, row.id)] == uuids[:3]
        assert read(people, row.id)["count"] == 3


class TestRefusals:
    @pytest.mark.parametrize(
        ("filters", "detail"),
        [
            ([], 'object with "properties"'),
            ({}, 'object with "properties"'),
            ({"properties": {"type": "XOR", "values": []}}, "AND or OR"),
            ({"properties": {"type": "AND", "values": 5}}, "must be a list"),
            (tree(5), "must be an object"),
            (tree({"type": "event", "key": "x"}), "Filters of type event"),
            (tree({"type": "person", "key": ""}), "needs the key"),
            (tree({"type": "person", "key": "x", "operator": "resembles"}), "not a known operator"),
            (tree(inside(1, operator="gt")), "in or not_in"),
            (tree({"type": "behavioral", "value": "performed_event_sequence", "key": "x"}), "not supported"),
            (tree({"type": "behavioral", "value": "performed_event"}), "needs the key of an event"),
            (
                tree({
                    "type": "behavioral", "value": "performed_event", "key": "x", "event_type": "events",
                    "explicit_datetime": "yesterday",
                }),
                "malformed",
            ),
        ],
    )  # fmt: skip
    def test_definitions(self, server, filters, detail):
        refuse(server, {"name": "Bad", "filters": filters}, detail=detail)
        assert server.client.get(URL).json()["count"] == 0

    def test_unknown_cohorts(self, server):
        for value in (99, "99"):
            refuse(
                server,
                {"name": "Bad", "filters": tree(inside(value))},
                detail="Cohort with id 99 does not exist",
                code="cohort_does_not_exist",
            )
        refuse(
            server,
            {"name": "Bad", "filters": tree(inside("x"))},
            detail="Cohort with id x does not exist",
            code="cohort_does_not_exist",
        )

    def test_circles(self, server):
        first = create(server, filters=tree(PRO))
        second = create(server, filters=tree(inside(first["id"])))
        third = create(server, filters=tree(inside(second["id"])))
        for target in (first, second, third):
            answer = server.client.patch(f"{URL}{first['id']}/", json={"filters": tree(inside(target["id"]))})
            assert (answer.status_code, answer.json()["attr"]) == (400, "filters")
            assert "circle" in answer.json()["detail"]
        assert read(server, first["id"])["filters"] == tree(PRO)

    def test_a_chain_that_is_too_long(self, server):
        last = create(server, filters=tree(PRO))["id"]
        for _ in range(19):
            last = create(server, filters=tree(inside(last)))["id"]
        refuse(server, {"name": "Deep", "filters": tree(inside(last))}, detail="nest too deep")

    def test_fields(self, server):
        refuse(server, {"filters": tree()}, detail="required", attr="name", code="required")
        refuse(server, {"name": "Bad"}, detail="required", code="required")
        refuse(server, {"name": "Bad", "groups": [{}], "filters": tree()}, detail="old form", attr="groups")
        refuse(server, {"name": "Bad", "query": {}, "filters": tree()}, detail="query", attr="query")
        refuse(
            server,
            {"name": "Bad", "filters": tree(), "_create_static_distinct_ids": ["a"]},
            detail="Only static",
            attr="is_static",
        )
        answer = server.client.post(
            URL, json={"name": "Bad", "is_static": True, "_create_static_person_ids": ["x"]}
        )
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_input")

    def test_kinds_stay(self, server):
        made = create(server, filters=tree(PRO))
        answer = server.client.patch(f"{URL}{made['id']}/", json={"is_static": True})
        assert (answer.status_code, answer.json()["attr"]) == (400, "is_static")
        answer = server.client.patch(
            f"{URL}{made['id']}/add_persons_to_static_cohort/", json={"distinct_ids": []}
        )
        assert answer.status_code == 400

    def test_too_many(self, server, monkeypatch):
        monkeypatch.setattr(service_module, "MAX_COHORTS_PER_PROJECT", 1)
        create(server, filters=tree(PRO))
        refuse(server, {"name": "More", "filters": tree()}, detail="at most 1 cohorts", attr=None)

    def test_too_many_persons_at_once(self, monkeypatch):
        from hoglab.http.errors import ApiError
        from hoglab.people.cohorts import Members, upload

        monkeypatch.setattr(upload, "MAX_PERSONS", 2)
        with pytest.raises(ApiError, match="At most 2 persons"):
            Members.of(distinct_ids=["a", "b", "c"])


class TestDeletion:
    def test_delete_restore_and_405(self, server):
        made = create(server, filters=tree(PRO))
        path = f"{URL}{made['id']}/"
        assert server.client.request("DELETE", path).status_code == 405
        assert server.client.patch(path, json={"deleted": True}).json()["deleted"] is True
        assert server.client.get(path).status_code == 404
        assert server.client.get(f"{path}persons/").status_code == 404
        assert server.client.patch(path, json={"name": "x"}).status_code == 404
        assert server.client.patch(path, json={"deleted": False}).json()["is_calculating"] is True
        assert read(server, made["id"])["deleted"] is False

    def test_not_while_in_use(self, server):
        made = create(server, filters=tree(PRO))
        flag = server.create("club", {"groups": [{"properties": [inside(made["id"])]}]})
        path = f"{URL}{made['id']}/"
        answer = server.client.patch(path, json={"deleted": True})
        assert answer.status_code == 400
        assert 'feature flag "club"' in answer.json()["detail"]
        server.patch(flag["id"], active=False)
        other = create(server, filters=tree(inside(made["id"])))
        answer = server.client.patch(path, json={"deleted": True})
        assert f"cohort {other['id']}" in answer.json()["detail"]
        server.client.patch(f"{URL}{other['id']}/", json={"deleted": True})
        assert server.client.patch(path, json={"deleted": True}).status_code == 200

    def test_unknown_ids(self, server):
        for path in ("99/", "abc/", "-1/", "99/persons/"):
            assert server.client.get(URL + path).status_code == 404


class TestLocalEvaluation:
    def test_a_change_reaches_sdks(self, server):
        made = create(server, filters=tree(PRO))
        server.create("club", {"groups": [{"properties": [inside(made["id"])]}]})

        def definitions():
            return server.client.get(f"/flags/definitions?token={server.token}&send_cohorts")

        before = definitions()
        assert before.json()["cohorts"] == {str(made["id"]): tree(PRO)["properties"]}
        server.client.patch(f"{URL}{made['id']}/", json={"filters": tree(GERMAN)})
        after = definitions()
        assert after.json()["cohorts"] == {str(made["id"]): tree(GERMAN)["properties"]}
        assert after.headers["etag"] != before.headers["etag"]
        server.calculator.run()
        assert definitions().headers["etag"] == after.headers["etag"], "members are not part of definitions"
