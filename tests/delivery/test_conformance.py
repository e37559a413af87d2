"""The conformance checklist of the runtime (spec: hog-runtime 12): each point is a test with a name."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from posthog import Posthog
from tests.conftest import StartServer
from tests.delivery.conftest import House, Receiver, stored
from tests.waiting import wait_for

from hoglab.storage.database.errors import DatabaseBusyError

TESTS = Path(__file__).parents[1]

CHECKLIST = {
    "truth tables": ["filters/hog/test_meaning.py: test_truth_table_a, test_truth_table_b"],
    "operators on every kind of value": [
        "filters/hog/test_meaning.py: test_operators, test_dates_and_versions, test_every_operator_is_tested"
    ],
    "only true matches": ["filters/hog/test_meaning.py: test_only_the_boolean_true_matches"],
    "empty mappings never fire": [
        "delivery/test_dispatch.py: test_a_function_whose_mappings_are_empty_never_runs"
    ],
    "masking table": [
        (
            "delivery/test_dispatch.py: test_without_a_threshold_only_the_first_of_a_window_runs, "
            "test_with_a_threshold_one_more_runs_after_so_many"
        )
    ],
    "masking of a batch": ["delivery/test_dispatch.py: test_a_batch_runs_its_first_ones"],
    "masking window": ["delivery/test_dispatch.py: test_a_window_does_not_move"],
    "masking fails closed": [
        "delivery/test_conformance.py: test_without_its_counts_masking_lets_nothing_through"
    ],
    "retry timeline": ["delivery/test_turns.py: test_delays_grow_and_listen_to_the_other_side"],
    "400, 401 and 404 are final": ["delivery/test_turns.py: test_refused_requests_fail_at_once"],
    "blocked addresses fail at once": [
        "delivery/guard/test_guard.py: test_no_spelling_reaches_an_internal_address"
    ],
    "redirects are not followed": ["delivery/test_redirects.py: test_a_redirect_acknowledges_nothing"],
    "kill between request and save": [
        "delivery/test_worker.py: test_killed_between_request_and_save_the_same_request_is_sent_again"
    ],
    "kill during back-off": [
        "delivery/test_worker.py: test_killed_during_back_off_it_goes_on_after_the_restart"
    ],
    "texts of limits": [
        (
            "delivery/test_turns.py: test_errors_end_runs_with_their_text, test_the_memory_limit_has_its_text, "
            "test_five_requests_are_allowed"
        )
    ],
    "the 25th line": ["delivery/test_turns.py: test_print_joins_with_commas_and_stops_after_24_lines"],
    "secrets": [
        "delivery/test_turns.py: test_secrets_are_nowhere_but_in_the_request",
        "delivery/test_batches.py: test_secrets_of_every_event_are_hidden",
    ],
    "watcher numbers": [
        "delivery/test_function_breaker.py: test_what_runs_cost, test_ten_slow_calls_a_second_degrade_then_disable"
    ],
    "saving arms again": [
        "delivery/test_function_breaker.py: test_saving_a_function_that_was_stopped_lets_it_run_again"
    ],
    "forced states": ["delivery/test_function_breaker.py: test_forced_states_are_sticky"],
    "transformation results": [
        (
            "functions/test_transformations.py: test_the_example_of_the_spec, test_falsy_results_drop_the_event, "
            "test_later_functions_and_filters_see_what_earlier_ones_made, test_results_that_are_no_event_change_nothing"
        )
    ],
    "$set of a transformation": [
        "delivery/test_conformance.py: test_what_a_transformation_sets_is_the_person_s"
    ],
    "webhook replies": [
        (
            "delivery/test_webhooks.py: test_the_program_decides_the_answer, "
            "test_what_is_no_enabled_webhook_is_not_found, test_a_stopped_function_answers_429, "
            "test_errors_are_told_to_the_log_not_to_the_sender"
        )
    ],
    "webhook headers": ["delivery/test_webhooks.py: test_a_program_sees_the_request"],
    "webhook size": ["delivery/test_webhooks.py: test_a_body_that_is_too_large_is_refused"],
    "identical JSON": ["delivery/test_conformance.py: test_what_an_sdk_sends_arrives_byte_for_byte"],
    "metric names and kinds": ["delivery/test_conformance.py: test_metrics_have_their_kinds"],
}

FAULTS = {
    "kill -9 of the server": ["faults/test_kill_server.py: test_nothing_acknowledged_is_lost_or_doubled"],
    "kill -9 of processes of functions": [
        "faults/test_bodies.py: test_killed_processes_lose_nothing",
        "faults/test_transformations.py: test_killed_processes_lose_no_event",
    ],
    "full disk": ["faults/test_full_disk.py: test_a_full_disk_delays_deliveries_and_loses_none"],
    "destinations that misbehave": [
        (
            "faults/test_destinations.py: test_one_that_hangs, test_one_that_always_resets, "
            "test_one_that_resets_connections, test_one_that_drips, test_one_that_answers_with_a_hundred_megabytes, "
            "test_one_that_asks_to_wait, test_one_that_flips_between_failure_and_success, "
            "test_one_that_closes_connections_that_were_to_be_kept"
        )
    ],
    "names that rebind": ["delivery/guard/test_guard.py: test_what_a_name_leads_to_is_judged_each_time"],
    "spellings of addresses": [
        (
            "delivery/guard/test_guard.py: test_no_spelling_reaches_an_internal_address, "
            "test_public_addresses_are_reached_in_every_spelling_that_denotes_them, "
            "test_a_redirect_to_another_host_is_not_followed, "
            "test_settings_of_proxies_do_not_lead_around_the_guard"
        )
    ],
    "functions that loop, recurse, allocate, flood and catch": [
        "faults/test_bodies.py: test_hostile_bodies_end_and_cost_no_one_else",
        (
            "faults/test_transformations.py: test_hostile_transformations_end_and_cost_no_one_else, "
            "test_a_server_outlives_a_hostile_transformation"
        ),
        "faults/test_slow_filters.py: test_a_slow_filter, test_a_slow_filter_of_a_mapping, test_slow_inputs",
    ],
    "ten thousand retries at once, and a restart during back-off": [
        "faults/test_bodies.py: test_ten_thousand_retries_that_are_due_at_once"
    ],
    "memory is back": [
        "faults/test_bodies.py: test_processes_give_back_what_hostile_bodies_took",
        "faults/test_memory.py: test_storms_leave_nothing_behind",
    ],
    "a webhook that is signed": [
        "e2e/test_incoming_webhook.py: test_signed_requests_become_events_and_forged_ones_do_not"
    ],
    "functions in a browser": ["clients/test_site_functions.py: test_site_functions_run, test_templates_run"],
}
"""What goes wrong, and the test that nothing is lost of it."""


@pytest.mark.parametrize("point", [*CHECKLIST, *FAULTS])
def test_every_point_has_its_test(point: str) -> None:
    for line in {**CHECKLIST, **FAULTS}[point]:
        path, _, names = line.partition(": ")
        tree = ast.parse((TESTS / path).read_text())
        known = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert known.issuperset(names.split(", ")), point


def test_without_its_counts_masking_lets_nothing_through(
    house: House, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    masking = {"ttl": 60, "hash": "{event.distinct_id}", "threshold": None}
    house.create("fetch(inputs.url)", values={"url": receiver.url}, masking=masking)
    first, second = stored(), stored()

    def away(_keys: Any) -> Any:
        raise DatabaseBusyError("queue.db is locked by another writer")

    with monkeypatch.context() as patch:
        patch.setattr(house.queue, "masking_counts", away)
        with pytest.raises(DatabaseBusyError):
            house.dispatch(first)
        assert house.queue.counts.backlog() == 0
    house.run(first, second)  # ingestion comes with the batch again
    assert len(receiver.hits) == 1


KINDS = {
    "triggered": "other",
    "filtered": "other",
    "filtering_failed": "other",
    "masked": "other",
    "fetch": "other",
    "inputs_failed": "failure",
    "disabled_permanently": "failure",
    "failed": "failure",
    "succeeded": "success",
}


def test_metrics_have_their_kinds(house: House, receiver: Receiver) -> None:
    bad_filter = {"properties": [{"type": "hogql", "key": "match(properties.a, properties.b)"}]}
    never = {"events": [{"id": "never", "type": "events"}]}
    house.create("fetch(inputs.url)", values={"url": receiver.url})
    house.create("throw Error('no')", masking={"ttl": 60, "hash": "all", "threshold": None})
    house.create(filters=bad_filter)
    house.create(filters=never)
    house.create(values={"a": "{jsonParse(event.properties.a)}"})
    stopped = house.create()
    house.delivery.function_breakers.force(stopped["id"], 12)
    properties = {"a": "x", "b": "("}
    house.run(stored(properties=properties), stored(properties=properties))
    found = set(house.rows("app_metric", "metric_name, metric_kind", "1"))
    assert dict(found) == KINDS
    assert len(found) == len(KINDS)


# --- through a whole server


def create(server: Any, **body: Any) -> None:
    answer = httpx.post(
        f"{server.url}/api/projects/1/hog_functions/",
        json={"enabled": True, "name": "f", **body},
        headers={"Authorization": f"Bearer {server.api_key}"},
    )
    assert answer.status_code == 201, answer.text


def sdk(server: Any, **options: Any) -> Posthog:
    return Posthog(server.project_token, host=server.url, sync_mode=True, disable_geoip=True, **options)


def test_what_a_transformation_sets_is_the_person_s(start_server: StartServer) -> None:
    server = start_server()
    hog = (
        "let changed := event\nchanged.properties['$set'] := {'plan': concat('plan of ', event.distinct_id)}\n"
        "return changed"
    )
    create(server, type="transformation", hog=hog)
    client = sdk(server)
    client.capture("signed up", distinct_id="ada", properties={"$set": {"plan": "none", "name": "Ada"}})
    client.shutdown()

    def person() -> Any:
        found = httpx.get(
            f"{server.url}/api/projects/1/persons/",
            params={"distinct_id": "ada"},
            headers={"Authorization": f"Bearer {server.api_key}"},
        ).json()["results"]
        return found and found[0]["properties"]

    assert wait_for(person)["plan"] == "plan of ada"
    assert "name" not in person()  # what the transformation left out


def as_node_writes_it(value: Any) -> bytes:
    """What the upstream product, whose functions run in Node, makes of a JSON text."""
    program = "process.stdout.write(JSON.stringify(JSON.parse(process.argv[1])))"
    return subprocess.run(["node", "-e", program, json.dumps(value)], check=True, capture_output=True).stdout


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_what_an_sdk_sends_arrives_byte_for_byte(start_server: StartServer) -> None:
    """The program passes the properties on as they are: numbers, order, odd characters and all."""
    server = start_server(HOGLAB_FETCH_ALLOW_CIDRS="127.0.0.0/8")
    receiver = Receiver()
    try:
        create(
            server,
            type="destination",
            hog="fetch(inputs.url, {'body': inputs.body})",
            inputs_schema=[{"key": "url", "type": "string"}, {"key": "body", "type": "json"}],
            inputs={
                "url": {"value": receiver.url},
                "body": {"value": {"who": "{event.distinct_id}", "given": "{event.properties.given}"}},
            },
        )
        given = {
            "z": 1,
            "a": [1, 2.5, -0.25, 1e21, 2**53 - 1, True, None, ""],
            "text": 'é ü 漢字 \u2028 \U0001f600 " \\ / <b> \n\t\x01',
            "nested": {"deep": {"list": [{"k": "v"}, []], "empty": {}}},
            "10": "number-like key",
            "2": "another",
        }
        client = sdk(server)
        client.capture("sent", distinct_id="ada", properties={"given": given})
        client.shutdown()
        [hit] = wait_for(lambda: receiver.hits)
        assert orjson.loads(hit.body) == {"who": "ada", "given": given}
        assert hit.body == as_node_writes_it({"who": "ada", "given": given})
    finally:
        receiver.close()
