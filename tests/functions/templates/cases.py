"""The cases that templates bring along: what goes in, and what must come out.

A template's folder holds ``test.yaml``, a list of cases::

    - name: posts a message
      inputs: {text: Hello}              # over the defaults of the schema
      globals: {event: {event: signup}}  # over EVENT and PERSON
      responses: [{status: 200, body: {ok: true}}]
      requests: [{method: POST, url: https://…, headers: {…}, body: …}]
      emails: [{from: …, to: …, subject: …, text: …, html: …}]
      error: what the run fails with
      result: what a transformation makes of the event, null for a dropped one
      printed_lines: how many lines go to the log, 0 if not given

Of ``requests``, ``emails``, ``error`` and ``result`` a case has those that it is about; a case without ``error`` must
not fail.

The cases of a webhook have, in place of ``globals`` and those three, what is sent to it and what comes of that::

      request: {method: POST, query: a=1, headers: {…}, body: a text}
      answer: {status: 200, body: …}
      captured: {event: …, distinct_id: …, properties: {…}}  # nothing is captured if not given
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import yaml

from hoglab.functions import templates
from hoglab.functions.documents.template_pages import example
from hoglab.functions.templates import Template, catalogue

PROJECT = {"id": 1, "name": "Shop", "url": "https://h.example/project/1"}
EVENT = {
    "uuid": "01990000-0000-7000-8000-000000000001",
    "event": "signup",
    "distinct_id": "u1",
    "properties": {},
    "elements_chain": "",
    "timestamp": "2026-01-01T10:00:00.000Z",
    "url": "https://h.example/project/1/events/01990000-0000-7000-8000-000000000001/2026-01-01T10%3A00%3A00.000Z",
}
PERSON = {
    "id": "01990000-0000-7000-8000-0000000000aa",
    "name": "Ann",
    "url": "https://h.example/project/1/person/u1",
    "properties": {},
}

KEYS = {"name", "inputs", "globals", "responses", "requests", "emails", "error", "result", "printed_lines"}
WEBHOOK_KEYS = {"name", "inputs", "request", "answer", "captured", "printed_lines"}


@dataclass(frozen=True)
class Case:
    """One case of a template, as its file has it."""

    template: Template
    given: dict[str, Any]

    @property
    def id(self) -> str:
        return f"{self.template.folder}: {self.given['name']}"

    @property
    def globals(self) -> dict[str, Any]:
        given = self.given.get("globals", {})
        return {
            "project": PROJECT,
            "groups": {},
            **given,
            "event": {**EVENT, **given.get("event", {})},
            "person": {**PERSON, **given.get("person", {})},
        }

    @property
    def requests(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.given.get("requests", [])
        return found

    @property
    def responses(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.given.get("responses", [])
        return found

    def function(self) -> dict[str, Any]:
        """The body of a request that creates the function, as people fill it in from the template."""
        given = {key: {"value": value} for key, value in self.given.get("inputs", {}).items()}
        body = example(self.template)
        return {**body, "inputs": {**body["inputs"], **given}}

    def secrets(self) -> list[str]:
        """The values that must not show up anywhere but in requests."""
        keys = {entry["key"] for entry in self.template.inputs_schema if entry.get("secret")}
        return [value for key, value in self.given.get("inputs", {}).items() if key in keys and value]


def cases_of(template: Template) -> list[Case]:
    """The cases of a template's folder."""
    text = (files(templates) / template.folder / "test.yaml").read_text("utf-8")
    return [Case(template, one) for one in yaml.load(text, yaml.CSafeLoader)]


PROGRAMS = [template for template in catalogue().values() if template.code_language == "hog"]
_ALL = [case for template in PROGRAMS for case in cases_of(template)]
CASES = [case for case in _ALL if case.template.type != "source_webhook"]
WEBHOOK_CASES = [case for case in _ALL if case.template.type == "source_webhook"]
