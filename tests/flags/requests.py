"""Calls of the API of flags, and parts of their bodies."""

from __future__ import annotations

URL = "/api/projects/1/feature_flags/"


def post(server, **body):
    return server.client.post(URL, json=body)


def error(answer):
    body = answer.json()
    assert set(body) == {"type", "code", "detail", "attr"}
    assert body["type"] == "validation_error"
    assert answer.status_code == 400
    return body["code"], body["attr"], body["detail"]


def group(**more):
    return {"groups": [more]}


def with_property(**leaf):
    return group(properties=[{"key": "x", "type": "person", "value": "y", **leaf}])
