"""Kill -9 of every process of a server of several: nothing acknowledged is lost, stored twice or out of order."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from tests.cluster import TOKEN, Cluster, RoundRobin, cluster
from tests.kafka import new_topic
from tests.waiting import PATIENCE_S

ROUNDS = int(os.environ.get("HOGLAB_TEST_PROCESS_KILLS", "1"))
"""How often each process is killed."""
SENDERS = 3
PAUSE_S = 0.05
EXPOSED_EVERY = 5
ROLES = {
    "core": "core",
    "edge-1": "edge",
    "edge-2": "edge",
    "deliver-1": "deliver",
    "deliver-2": "deliver",
    "deliver-3": "deliver",
}
INGESTING = {"ingest-1": "ingest", "ingest-2": "ingest"}
"""What takes events out of Kafka."""
KILLED = ("deliver-1", "edge-1", "deliver-2", "core", "edge-2", "deliver-3")
METRIC = {
    "kind": "ExperimentMetric",
    "metric_type": "funnel",
    "name": "Hellos",
    "series": [{"kind": "EventsNode", "event": "hello"}],
}
FORWARD = """\
let told := {'uuid': event.uuid, 'line': event.properties.line, 'number': event.properties.number}
let r := fetch(inputs.url, {'body': told})
if (r.status >= 400) { throw Error(f'answered {r.status}') }
"""


class Sink:
    """A destination that keeps what came, in the order in which it came, and takes its time.

    ``overlaps``: which runs of one line came while another of the line was at work.
    ``answers``: while it is cleared, requests are left without an answer.
    """

    def __init__(self, takes_s: float = 0.0) -> None:
        self.came: list[dict[str, Any]] = []
        self.overlaps: list[tuple[str, str]] = []
        self.answers = threading.Event()
        self.answers.set()
        came, overlaps, answers = self.came, self.overlaps, self.answers
        at_work: dict[str, str] = {}
        never = threading.Event()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                told = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                came.append(told)
                other = at_work.setdefault(told["line"], told["uuid"])
                if other != told["uuid"]:
                    overlaps.append((other, told["uuid"]))
                never.wait(takes_s)
                answers.wait(PATIENCE_S)
                if other == told["uuid"]:
                    at_work.pop(told["line"], None)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]  # killed clients hang up
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.answers.set()
        self._server.shutdown()
        self._server.server_close()


class Sender(threading.Thread):
    """Sends one event after the other, each again until it is acknowledged, and asks for flags between."""

    def __init__(self, url: str, line: int, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._url = url
        self._line = line
        self._stop_now = stop
        self.acknowledged: list[str] = []
        self.exposed = 0
        self.wrong: list[str] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            number = 0
            while not self._stop_now.wait(PAUSE_S):
                who = f"{self._line}-{number}"
                if number % EXPOSED_EVERY == 0:
                    variant = self._variant(who)
                    called = {"$feature_flag": "colour", "$feature_flag_response": variant}
                    self._send("$feature_flag_called", who, called)
                    self.exposed += 1
                sent = self._send("hello", who, {"line": f"line-{self._line}", "number": number})
                self.acknowledged.append(sent)
                number += 1
        except BaseException as error:
            self.error = error

    def _post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        """The answer of whichever process is there, on a connection of its own."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            try:
                answer = httpx.post(f"{self._url}{path}", json=body, timeout=20)
            except httpx.TransportError:
                time.sleep(0.05)
                continue
            if answer.status_code == 503:
                time.sleep(0.2)
                continue
            return answer
        raise TimeoutError(path)

    def _send(self, name: str, who: str, properties: dict[str, Any]) -> str:
        uuid = str(uuid4())
        event = {"uuid": uuid, "event": name, "distinct_id": who, "properties": properties}
        answer = self._post("/capture/", {"api_key": TOKEN, **event})
        if answer.status_code != 200:
            self.wrong.append(f"{answer.status_code} {answer.text}")
        return uuid

    def _variant(self, who: str) -> str:
        flags = self._post("/flags/?v=2", {"token": TOKEN, "distinct_id": who}).json()
        if flags["errorsWhileComputingFlags"]:
            self.wrong.append(str(flags))
        return str(flags["flags"]["colour"]["variant"])


def wait_for(look: Callable[[], bool], what: Callable[[], str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if look():
            return
        time.sleep(0.2)
    pytest.fail(what())


def stored(api: httpx.Client, name: str) -> Counter[str]:
    """How often each uuid of an event is in the store."""
    query = f"SELECT uuid, count() FROM events WHERE event = '{name}' GROUP BY uuid LIMIT 50000"  # noqa: S608
    answer = api.post("/query/", json={"query": {"kind": "HogQLQuery", "query": query}})
    if answer.status_code == 200:
        return Counter({str(uuid): count for uuid, count in answer.json()["results"]})
    found: Counter[str] = Counter()
    page: str | None = f"/events/?event={name}&limit=1000"
    while page:
        body = api.get(page).json()
        found.update(each["id"] for each in body["results"])
        page = body.get("next")
    return found


def prepare(api: httpx.Client, sink: Sink) -> int:
    """An experiment, and a function that tells the sink of each event in the order of its line."""
    experiment = {
        "name": "Colour",
        "feature_flag_key": "colour",
        "start_date": "2026-01-01",
        "metrics": [METRIC],
    }
    made = api.post("/experiments/", json=experiment)
    assert made.status_code == 201, made.text
    function = {
        "type": "destination",
        "name": "sink",
        "enabled": True,
        "hog": FORWARD,
        "inputs_schema": [{"key": "url", "type": "string"}],
        "inputs": {"url": {"value": sink.url}},
        "filters": {"events": [{"id": "hello", "type": "events"}]},
        "x_delivery": {"order_key": "{event.properties.line}"},
    }
    answer = api.post("/hog_functions/", json=function)
    assert answer.status_code == 201, answer.text
    return int(made.json()["id"])


@pytest.mark.slow
@pytest.mark.timeout(900 + 120 * ROUNDS)
@pytest.mark.parametrize("log", ["PostgreSQL", "Kafka"])
def test_each_process_is_killed_under_load(
    log: str, postgres_url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Events of one distinct id keep their order; those of several only where the log has one order for all."""
    sink, stop = Sink(), threading.Event()
    topic, roles, killed = {}, ROLES, KILLED
    if log == "Kafka":
        broker = request.getfixturevalue("kafka")
        topic["HOGLAB_EVENT_LOG_URL"] = f"kafka://{broker}/{new_topic()}?partitions=4"
        topic["HOGLAB_EVENT_STORE_URL"] = request.getfixturevalue("events_url")
        roles, killed = ROLES | INGESTING, (*KILLED, *INGESTING)
    with cluster(tmp_path, postgres_url, **topic) as server:
        for name, role in roles.items():
            server.add(name, role)
        server.start(*roles)
        proxy = RoundRobin([server.processes[name].url for name in ("edge-1", "edge-2")])
        api = server.api()
        experiment = prepare(api, sink)
        senders = [Sender(proxy.url, line, stop) for line in range(SENDERS)]
        for sender in senders:
            sender.start()
        for name in killed * ROUNDS:
            before = sum(len(sender.acknowledged) for sender in senders)
            wait_for(
                lambda: sum(len(each.acknowledged) for each in senders) >= before + 3 * SENDERS,  # noqa: B023
                lambda: f"nothing is taken any more: {[each.error for each in senders]}",
            )
            server.processes[name].kill(signal.SIGKILL)
            server.start(name)
        stop.set()
        for sender in senders:
            sender.join(PATIENCE_S)
            assert sender.error is None
        check(server, api, sink, senders, experiment, ordered=not topic)
        assert not sink.overlaps
        api.close()
        proxy.close()
    sink.close()


def check(
    server: Cluster,
    api: httpx.Client,
    sink: Sink,
    senders: list[Sender],
    experiment: int,
    *,
    ordered: bool = True,
    late: bool = False,
) -> None:
    """What must hold at the end.

    ``ordered``: there is an order of the events of several distinct ids. ``late``: second tries of runs that were taken
    over may come after later runs, and logs tell of a database that was away.
    """
    assert [sender.wrong for sender in senders] == [[]] * SENDERS
    sent = {uuid for sender in senders for uuid in sender.acknowledged}
    wait_for(
        lambda: {each["uuid"] for each in sink.came} >= sent,
        lambda: f"{len(sent - {each['uuid'] for each in sink.came})} of {len(sent)} were not delivered",
    )
    wait_for(lambda: set(stored(api, "hello")) >= sent, lambda: "acknowledged events are lost")
    assert set(stored(api, "hello").values()) == {1}
    assert set(stored(api, "hello")) == sent
    for line in range(SENDERS if ordered else 0):
        numbers = [each["number"] for each in sink.came if each["line"] == f"line-{line}"]
        numbers = list(dict.fromkeys(numbers)) if late else numbers
        assert numbers == sorted(numbers), f"line {line} was overtaken"
    query = {"kind": "ExperimentQuery", "experiment_id": experiment, "metric": METRIC}

    def samples() -> tuple[int, int]:
        answer = api.post("/query/", json={"query": query, "refresh": "force_blocking"})
        assert answer.status_code == 200, answer.text
        body = answer.json()
        variants = [body["baseline"], *body["variant_results"]]
        return sum(each["number_of_samples"] for each in variants), sum(each["sum"] for each in variants)

    exposed = sum(sender.exposed for sender in senders)
    wait_for(lambda: samples() == (exposed, exposed), lambda: f"{samples()}, not {exposed}")
    for name, process in server.processes.items():
        assert httpx.get(f"{process.url}/_readyz", timeout=30).status_code == 200, name
        if not late:
            assert "Traceback" not in process.output(), f"{name}: {process.output()[-3000:]}"
