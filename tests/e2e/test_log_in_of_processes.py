"""A log-in that one process is told of counts at once in another one, long before it is ingested."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
from tests.cluster import TOKEN, cluster
from tests.waiting import wait_for

VISITORS = 16
FLAG = {
    "key": "colour",
    "ensure_experience_continuity": True,
    "filters": {
        "groups": [{"rollout_percentage": 100}],
        "multivariate": {
            "variants": [{"key": name, "rollout_percentage": 50} for name in ("control", "test")]
        },
    },
}


def test_no_variant_flips_when_each_request_reaches_another_process(
    postgres_url: str, tmp_path: Path
) -> None:
    with cluster(tmp_path, postgres_url) as server:
        for name, role in {"core": "core", "edge-1": "edge", "edge-2": "edge"}.items():
            server.add(name, role)
        server.start("core", "edge-1", "edge-2")
        api = server.api()
        assert api.post("/feature_flags/", json=FLAG).status_code == 201

        def variant(process: str, distinct_id: str, **body: Any) -> str:
            url = f"{server.processes[process].url}/flags/?v=2"
            answer = httpx.post(
                url, json={"token": TOKEN, "distinct_id": distinct_id, **body}, timeout=60
            ).json()
            assert answer["errorsWhileComputingFlags"] is False
            return str(answer["flags"]["colour"]["variant"])

        wait_for(lambda: all("colour" in flags(server.processes[name].url) for name in ("edge-1", "edge-2")))
        before = [variant("edge-1", f"visitor-{number}") for number in range(VISITORS)]
        assert set(before) == {"control", "test"}
        for number in range(VISITORS):
            variant("edge-2", f"user-{number}", **{"$anon_distinct_id": f"visitor-{number}"})
        after = [variant("edge-1", f"user-{number}") for number in range(VISITORS)]
        assert after == before
        identified = [
            {
                "event": "$identify",
                "distinct_id": f"user-{number}",
                "properties": {"$anon_distinct_id": f"visitor-{number}"},
            }
            for number in range(VISITORS)
        ]
        sent = httpx.post(
            f"{server.processes['edge-1'].url}/batch/",
            json={"api_key": TOKEN, "batch": identified},
            timeout=60,
        )
        assert sent.status_code == 200
        wait_for(
            lambda: api.get("/events/?event=$identify&limit=100").json()["results"][VISITORS - 1 :],
            every_s=0.2,
        )
        for process in ("core", "edge-1", "edge-2"):
            assert [variant(process, f"user-{number}") for number in range(VISITORS)] == before
        api.close()


def flags(url: str) -> dict[str, Any]:
    """Return the flags that a process has for somebody."""
    answer = httpx.post(f"{url}/flags/?v=2", json={"token": TOKEN, "distinct_id": "nobody"}, timeout=60)
    found: dict[str, Any] = answer.json()["flags"]
    return found
