"""Versions of services' APIs that templates name: known, written down, and not about to end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from importlib.resources import files

import pytest

from hoglab.functions import templates
from hoglab.functions.templates import Template, catalogue

NOTICE = timedelta(days=90)
OWN = {"webhook", "smtp-email"}
"""Destinations without a service whose document they could follow."""
DESTINATIONS = [
    pytest.param(one, id=one.folder)
    for one in catalogue().values()
    if one.type == "destination" and one.folder not in OWN
]


@pytest.mark.parametrize("template", DESTINATIONS)
def test_a_template_names_the_document_that_it_follows(template: Template) -> None:
    follows = template.follows
    assert follows is not None
    assert follows.document.startswith("https://")
    folder = files(templates) / template.folder
    sources = [(folder / name).read_text("utf-8") for name in ("code.hog", "template.toml")]
    if follows.version is not None:
        named = sources[0].count(follows.version) + sources[1].count(follows.version) - 1
        assert named > 0, f"{template.folder} says that it uses {follows.version}, and does not"
        assert follows.version in (folder / "test.yaml").read_text("utf-8"), (
            "no recorded request shows the version"
        )
    if follows.ends is not None:
        assert follows.read is not None, "an end was read somewhere, on some day"


@pytest.mark.parametrize("template", DESTINATIONS)
def test_no_version_is_about_to_end(template: Template) -> None:
    """This test fails by the passing of time alone: that is what it is for."""
    follows = template.follows
    assert follows is not None
    if follows.ends is None:
        return
    today = datetime.now(UTC).date()
    assert today + NOTICE < follows.ends, (
        f"{template.folder} uses version {follows.version}, which ends on {follows.ends}. Read {follows.document} and "
        "what has changed since, put the new version into template.toml, code.hog and test.yaml, compare the requests "
        "in test.yaml with the document, and set `version`, `ends` and `read` under [follows] in template.toml."
    )
