"""An experiment with three variants, five metrics and three weeks of people, sent over the public API."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import httpx
from tests.waiting import PATIENCE_S

DAYS = 21
FLAG = "one-page-checkout"
SHARES = (("control", 34), ("one-page", 33), ("one-page-express", 33))
LIFT = {"control": 1.0, "one-page": 1.15, "one-page-express": 1.42}
STEPS = ("saw basket", "entered address", "checkout completed")


def node(event: str, **more: Any) -> dict[str, Any]:
    return {"kind": "EventsNode", "event": event, **more}


def metric(name: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"kind": "ExperimentMetric", "metric_type": kind, "name": name, "goal": "increase", **more}


PRIMARY = [
    metric("Checkout completed", "funnel", series=[node(step) for step in STEPS]),
    metric("Revenue per user", "mean", source=node("checkout completed", math="sum", math_property="amount")),
    metric(
        "Average order value",
        "ratio",
        numerator=node("checkout completed", math="sum", math_property="amount"),
        denominator=node("checkout completed"),
    ),
]
SECONDARY = [
    metric("Support tickets per user", "mean", source=node("ticket opened")) | {"goal": "decrease"},
    metric(
        "Back within 7 days",
        "retention",
        start_event=node("saw basket"),
        completion_event=node("came back"),
        retention_window_start=1,
        retention_window_end=7,
        retention_window_unit="day",
        start_handling="first_seen",
    ),
]


class Client:
    """A key's way to one project of a server."""

    def __init__(self, url: str, key: str, token: str, project: int = 1) -> None:
        self.url, self.key, self.token, self.project = url, key, token, project
        self._http = httpx.Client(headers={"Authorization": f"Bearer {key}"}, timeout=PATIENCE_S)

    def call(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """The answer of an operation below the project, or of an absolute path."""
        where = path if path.startswith("/") else f"/api/projects/{self.project}/{path}"
        answer = self._http.request(method, self.url + where, json=body, params=query or None)
        assert answer.is_success, f"{method} {where}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def send(self, events: list[dict[str, Any]]) -> None:
        rest = iter(events)
        while part := list(islice(rest, 1000)):
            body = {"api_key": self.token, "historical_migration": True, "batch": part}
            answer = self._http.post(f"{self.url}/batch/", json=body)
            assert answer.status_code == 200, answer.text

    def settled(self, name: str, count: int = 1) -> None:
        """Wait until events of this name are stored."""
        deadline = time.monotonic() + PATIENCE_S
        while len(self.call("GET", "events/", event=name, limit=count)["results"]) < count:
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def close(self) -> None:
        self._http.close()


def variants(shares: tuple[tuple[str, int], ...]) -> dict[str, Any]:
    return {"feature_flag_variants": [{"key": key, "split_percent": share} for key, share in shares]}


def exposure(person: str, flag: str, variant: str, at: datetime) -> dict[str, Any]:
    properties = {
        "$feature_flag": flag,
        "$feature_flag_response": variant,
        f"$feature/{flag}": variant,
    }
    return event("$feature_flag_called", person, at, properties)


def event(name: str, person: str, at: datetime, properties: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "event": name,
        "distinct_id": person,
        "timestamp": at.isoformat(),
        "properties": properties or {},
    }


def start() -> datetime:
    """Noon UTC, `DAYS` days before today."""
    noon = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
    return noon - timedelta(days=DAYS)


def launch(
    client: Client, name: str, flag: str, shares: tuple[tuple[str, int], ...], **more: Any
) -> dict[str, Any]:
    """A running experiment that began `DAYS` ago."""
    made = client.call(
        "POST",
        "experiments/",
        {"name": name, "feature_flag_key": flag, "parameters": variants(shares), **more},
    )
    client.call("POST", f"experiments/{made['id']}/launch/")
    answer: dict[str, Any] = client.call(
        "PATCH", f"experiments/{made['id']}/", {"start_date": start().isoformat()}
    )
    return answer


def settle(client: Client, experiment: dict[str, Any], people: int) -> None:
    """Wait until everybody is counted in every result."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = client.call("GET", f"experiments/{experiment['id']}/results/", refresh="true")
        exposed = sum(((found["exposures"] or {}).get("total_exposures") or {}).values())
        counted = [
            sum(
                row["number_of_samples"]
                for row in (each["result"]["baseline"], *each["result"]["variant_results"])
            )
            for each in found["metrics"]
            if each["result"] is not None and each["metric_type"] != "retention"
        ]
        if found["status"] == "complete" and exposed == people and set(counted) == {people}:
            return
        assert time.monotonic() < deadline, (exposed, counted, found["pending"])
        time.sleep(0.2)


def checkout(client: Client, people: int) -> dict[str, Any]:
    """The experiment of the results page."""
    made = launch(
        client,
        "One-page checkout",
        FLAG,
        SHARES,
        description="People leave between address and payment. One page with express payment first should bring "
        "more of them to the end.",
        metrics=PRIMARY,
        metrics_secondary=SECONDARY,
    )
    now = datetime.now(UTC).isoformat()
    client.send([each for each in _checkout_events(people) if each["timestamp"] < now])
    return made


def _checkout_events(people: int) -> Iterator[dict[str, Any]]:
    rng = random.Random(7)
    names, weights = zip(*SHARES, strict=True)
    for number in range(people):
        person, variant = f"shopper-{number}", rng.choices(names, weights)[0]
        at = start() + timedelta(days=rng.random() * DAYS * 0.97)
        yield exposure(person, FLAG, variant, at)
        if rng.random() < 0.8:
            yield event(STEPS[0], person, at + timedelta(minutes=2))
            if rng.random() < 0.63 * LIFT[variant] ** 0.4:
                yield event(STEPS[1], person, at + timedelta(minutes=4))
                if rng.random() < 0.28 * LIFT[variant] ** 0.7:
                    amount = round(rng.lognormvariate(3.6, 0.5), 2)
                    yield event(STEPS[2], person, at + timedelta(minutes=9), {"amount": amount})
            if rng.random() < 0.26:
                yield event("came back", person, at + timedelta(days=2))
        if rng.random() < 0.06:
            yield event("ticket opened", person, at + timedelta(minutes=30))


def lopsided(client: Client, people: int = 10_000) -> dict[str, Any]:
    """An experiment that asks for halves and gets 55 % and 45 %."""
    made = launch(
        client,
        "Lopsided",
        "lopsided",
        (("control", 50), ("test", 50)),
        metrics=[metric("Bought", "funnel", series=[node("bought")])],
    )
    client.send(list(_lopsided_events(people)))
    return made


def _lopsided_events(people: int) -> Iterator[dict[str, Any]]:
    at = start() + timedelta(days=1)
    for number in range(people):
        person, variant = f"lop-{number}", "control" if number % 20 < 11 else "test"
        yield exposure(person, "lopsided", variant, at + timedelta(minutes=number % 5000))
        if number % (7 if variant == "control" else 4) == 0:
            yield event("bought", person, at + timedelta(days=5))


def hostile(client: Client, name: str) -> dict[str, Any]:
    """An experiment, a variant, a metric, events, persons and properties that are all called the same."""
    made = launch(
        client,
        name,
        "hostile",
        (("control", 50), (name, 50)),
        description=name * 20,
        metrics=[metric(name, "funnel", series=[node(name)])],
    )
    at = start() + timedelta(days=20)
    events = []
    for number in range(200):
        person = f"{name} {number}"
        events.append(exposure(person, "hostile", name if number % 2 else "control", at))
        if number % 3 == 0:
            properties = {name: name, "link": "javascript:alert(1)", "long": "x" * 10_000}
            events.append(event(name, person, at + timedelta(hours=1), properties))
    client.send(events)
    return made
