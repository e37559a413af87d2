"""The pages of the templates: up to date, and what they tell people to send is taken."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from tests.functions.conftest import Api
from tests.functions.templates.cases import cases_of
from tests.waiting import PATIENCE_S

from hoglab.functions.documents.template_pages import KINDS, pages
from hoglab.functions.templates import catalogue

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "docs/templates"
CHAPTERS = {"hog.md"}
"""What `docs/hog.md` is made of lies in the same folder."""


def test_the_pages_are_up_to_date() -> None:
    written = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")}
    assert {name: text for name, text in written.items() if name not in CHAPTERS} == pages(), "run make docs"


def test_the_index_leads_to_every_page() -> None:
    assert {one.type for one in catalogue().values()} <= set(KINDS)
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", pages()["README.md"]))
    assert linked == set(pages()) - {"README.md"}


@pytest.mark.parametrize("name", [name for name in pages() if name != "README.md"])
def test_the_request_of_a_page_makes_a_function(name: str, api: Api) -> None:
    (body,) = re.findall(r"<<'JSON'\n(.*)\nJSON\n", (FOLDER / name).read_text(encoding="utf-8"), re.DOTALL)
    made = api.create(**json.loads(body))
    assert made["enabled"] is True
    assert made["bytecode"] or made["transpiled"]


SHEET = """
const rows = [];
const ContentService = {createTextOutput: (text) => text};
const SpreadsheetApp = {getActive: () => ({getSheetByName: (name) => ({appendRow: (row) => rows.push([name, row])})})};
"""
"""What Apps Script gives to scripts, as far as the script of the page uses it."""


def test_the_script_for_google_sheets_appends_what_the_template_sends(node_modules: Path) -> None:
    (script,) = re.findall(r"```javascript\n(.*?)```", pages()["google-sheets.md"], re.DOTALL)
    (case, *_) = cases_of(catalogue()["template-google-sheets"])
    sent = case.requests[0]["body"]
    right, wrong = ({**sent, "secret": secret} for secret in ("a long random text", "guessed"))
    calls = [f"doPost({{postData: {{contents: {json.dumps(json.dumps(one))}}}}})" for one in (right, wrong)]
    program = f"{SHEET}{script}\nconsole.log(JSON.stringify([{', '.join(calls)}, rows]))"
    done = subprocess.run(
        ["node", "-e", program], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert json.loads(done.stdout) == ["ok", "wrong secret", [[sent["sheet"], sent["row"]]]]
