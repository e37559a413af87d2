"""The few calls of the public API that the demo makes."""

from __future__ import annotations

from typing import Any

import httpx


class Api:
    """A client for one project, with a personal API key."""

    def __init__(self, url: str, api_key: str, project_id: int = 1) -> None:
        self._client = httpx.Client(
            base_url=f"{url}/api/projects/{project_id}",
            headers={"Authorization": f"Bearer {api_key}"},
            timeout=60.0,
        )

    def create_experiment(self, body: dict[str, Any]) -> dict[str, Any]:
        return self._send("POST", "/experiments/", json=body)

    def create_hog_function(self, body: dict[str, Any]) -> dict[str, Any]:
        return self._send("POST", "/hog_functions/", json=body)

    def timeseries(self, experiment_id: int, metric: dict[str, Any]) -> dict[str, Any]:
        return self._send(
            "GET",
            f"/experiments/{experiment_id}/timeseries_results/",
            params={"metric_uuid": metric["uuid"], "fingerprint": metric["fingerprint"]},
        )

    def close(self) -> None:
        self._client.close()

    def _send(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        response = self._client.request(method, path, **options)
        if response.is_error:
            raise httpx.HTTPStatusError(
                f"{method} {path} answered {response.status_code}: {response.text}",
                request=response.request,
                response=response,
            )
        answer: dict[str, Any] = response.json()
        return answer
