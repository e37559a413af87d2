"""The catalogue of function templates: one folder each, with its description, code, help text and tests.

A folder holds ``template.toml`` (the object of spec hog-functions-api 11.1 without its code), ``code.hog``
(``code.ts`` for what runs in browsers, which has tests of its own in place of the last file), ``README.md`` and
``test.yaml`` (inputs and events, and the requests or events that must result; the tests of the catalogue say how it
is written).
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import orjson

from hoglab.functions.icons import icon_url

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

__all__ = ["UNUSABLE", "Follows", "Template", "acknowledgements", "catalogue", "find_template"]

UNUSABLE = frozenset({"hidden"})
"""Statuses of templates from which nothing may be created."""


@dataclass(frozen=True, slots=True)
class Follows:
    """The document of a service that a template follows.

    ``read``: the day on which it was last compared with the template, None where that was before such days were noted.
    ``ends``: the day from which the service may refuse ``version``, None where none is known. ``is_estimate``: the
    service names no day, so that ``ends`` follows from how long earlier versions lasted.
    """

    document: str
    read: date | None = None
    version: str | None = None
    ends: date | None = None
    is_estimate: bool = False


@dataclass(frozen=True, slots=True)
class Template:
    """One template. The schema of its inputs is kept as its author wrote it."""

    id: str
    name: str
    description: str | None
    code: str
    code_language: str
    inputs_schema: list[dict[str, Any]]
    type: str
    status: str
    category: list[str]
    icon_url: str | None
    filters: dict[str, Any] | None
    masking: dict[str, Any] | None
    mapping_templates: list[dict[str, Any]] | None
    readme: str
    folder: str
    follows: Follows | None = None
    answers: tuple[dict[str, Any], ...] = ()
    """Responses of the service to a run's requests, in turn, with which test runs go on that send none."""

    def wire(self) -> dict[str, Any]:
        """Return the template object of the API."""
        return {
            "id": self.id,
            "name": self.name,
            "description": self.description,
            "code": self.code,
            "code_language": self.code_language,
            "inputs_schema": self.inputs_schema,
            "type": self.type,
            "status": self.status,
            "category": self.category,
            "free": True,
            "icon_url": self.icon_url,
            "filters": self.filters,
            "masking": self.masking,
            "mapping_templates": self.mapping_templates,
        }

    @property
    def version(self) -> str:
        """A hash of what the API shows, different after every change."""
        return hashlib.sha256(orjson.dumps(self.wire(), option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


ALIASES: Mapping[str, str] = {}
"""Other ids of templates, each with its present id."""


def acknowledgements(template_id: str | None) -> tuple[dict[str, Any], ...]:
    """Return the answers with which the service of a template accepts what is sent; none without a template."""
    template = None if template_id is None else find_template(template_id)
    return () if template is None else template.answers


def find_template(template_id: str) -> Template | None:
    """Return the template with an id, None when there is none."""
    return catalogue().get(ALIASES.get(template_id, template_id))


@lru_cache(maxsize=1)
def catalogue() -> Mapping[str, Template]:
    """Return every template by its id, read once."""
    templates = {}
    for folder in sorted(_root().iterdir(), key=lambda entry: entry.name):
        if folder.is_dir() and folder.joinpath("template.toml").is_file():
            template = _read(folder)
            templates[template.id] = template
    return templates


def _root() -> Traversable:
    return files(__name__)


def _read(folder: Traversable) -> Template:
    described = tomllib.loads(folder.joinpath("template.toml").read_text("utf-8"))
    language = "javascript" if folder.joinpath("code.ts").is_file() else "hog"
    code = folder.joinpath("code.hog" if language == "hog" else "code.ts")
    icon = described.get("icon")
    return Template(
        id=described["id"],
        name=described["name"],
        description=described.get("description"),
        code=code.read_text("utf-8").strip(),
        code_language=language,
        inputs_schema=described.get("inputs_schema", []),
        type=described["type"],
        status=described["status"],
        category=described["category"],
        icon_url=None if icon is None else icon_url(icon),
        filters=described.get("filters"),
        masking=described.get("masking"),
        mapping_templates=described.get("mapping_templates"),
        readme=folder.joinpath("README.md").read_text("utf-8"),
        folder=folder.name,
        follows=Follows(**described["follows"]) if "follows" in described else None,
        answers=tuple(described.get("answers", ())),
    )
