"""``hoglab hog``: every command through its real process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.forked import run
from tests.waiting import PATIENCE_S

HOGLAB = [sys.executable, "-m", "hoglab", "hog"]


def hog(
    *arguments: str | Path, stdin: str | bytes = b"", **environment: str
) -> subprocess.CompletedProcess[str]:
    done = run(
        "hog",
        *map(str, arguments),
        environment={**os.environ, **environment},
        timeout_s=PATIENCE_S,
        stdin=stdin.encode() if isinstance(stdin, str) else stdin,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return tmp_path / "program.hog"


# --- format


def test_format_in_place(program: Path) -> None:
    program.write_text("let  a:=1 -- one\nreturn a;")
    checked = hog("format", "--check", program)
    assert (checked.returncode, checked.stdout) == (1, f"{program} would be changed\n")
    shown = hog("format", "--diff", program)
    assert shown.returncode == 0
    assert "-let  a:=1 -- one\n-return a;\n+let a := 1 -- one\n" in shown.stdout
    assert program.read_text() == "let  a:=1 -- one\nreturn a;"
    assert hog("format", program).returncode == 0
    assert program.read_text() == "let a := 1 -- one\nreturn a\n"
    assert hog("format", "--check", program).returncode == 0


def test_format_standard_input() -> None:
    assert hog("format", "-", stdin="return  1").stdout == "return 1\n"
    assert hog("format", "-", stdin="").stdout == ""


def test_format_goes_on_after_bad_files(program: Path, tmp_path: Path) -> None:
    program.write_text("return  1")
    bad, binary = tmp_path / "bad.hog", tmp_path / "binary.hog"
    bad.write_text("let a = 1")
    binary.write_bytes(b"return '\xff'")
    done = hog("format", bad, binary, tmp_path / "missing.hog", program)
    assert done.returncode == 1
    assert f"{bad}:1:7: error:" in done.stderr
    assert "binary.hog is not UTF-8 text" in done.stderr
    assert "missing.hog cannot be read" in done.stderr
    assert bad.read_text() == "let a = 1"
    assert program.read_text() == "return 1\n"


def test_format_keeps_line_breaks_in_texts(program: Path) -> None:
    program.write_bytes(b"return  'a\r\nb'\r\n")
    assert hog("format", program).returncode == 0
    assert program.read_bytes() == b"return 'a\r\nb'\n"


# --- check


def test_check_several_files(program: Path, tmp_path: Path) -> None:
    program.write_text("let unused := 1\nreturn event.name")
    good = tmp_path / "good.hog"
    good.write_text("return 1")
    done = hog("check", program, good)
    assert done.returncode == 0
    assert f"{program}:1:5: warning: The variable `unused` is never read [unused-variable]" in done.stdout
    assert f"{good}: no findings" in done.stdout
    assert hog("check", "--strict", program).returncode == 1
    assert hog("check", "--strict", good).returncode == 0

    done = hog("check", "--json", "--reads", program, good)
    first, second = json.loads(done.stdout)
    assert first["file"] == str(program)
    assert [one["code"] for one in first["findings"]] == ["unused-variable"]
    assert (first["reads"], second["findings"]) == (["event.name"], [])


def test_check_knows_kinds_and_globals(program: Path, tmp_path: Path) -> None:
    program.write_text("properties.plan")
    assert "[filter-not-boolean]" in hog("check", "--kind", "filter", program).stdout
    program.write_text("Hi {persn.name}")
    (tmp_path / "globals.json").write_text('{"person": {}}')
    done = hog("check", "--kind", "template", "--globals", tmp_path / "globals.json", program)
    assert "did you mean `person`?" in done.stdout


def test_check_accepts_what_any_kind_may_call_and_knows_the_globals_of_each(program: Path) -> None:
    program.write_text("let found := fetch(inputs.url) postHogCapture(geoipLookup('1.1.1.1')) return found")
    assert hog("check", program).stdout == f"{program}: no findings\n"
    program.write_text(
        "let item := [1] print(evnt.properties, event.propertis.plan, itm.x, item, request.bdy)"
    )
    assert "unknown-name" not in hog("check", program).stdout, "nobody knows what it is for"
    found = hog("check", "--kind", "destination", program).stdout
    for name, guess in (("evnt", "event"), ("propertis", "properties"), ("itm", "item"), ("bdy", "body")):
        assert f"`{name}`" in found
        assert f"did you mean `{guess}`?" in found
    program.write_text(
        "let event := inputs.event return {'properties': event.properties, 'a': event.timestmp}"
    )
    assert hog("check", "--kind", "destination", "--strict", program).returncode == 0, (
        "a variable, not the global"
    )
    program.write_text("return person.properties.plan")
    assert "There is no global `person`" in hog("check", "--kind", "transformation", program).stdout


def test_what_cannot_be_read(program: Path, tmp_path: Path) -> None:
    program.write_bytes(b"\xff\xfe")
    for command, file, words in (
        ("run", program, "is not UTF-8 text"),
        ("compile", tmp_path, "cannot be read"),
        ("check", tmp_path / "none", "cannot be read"),
    ):
        done = hog(command, file)
        assert done.returncode == 1
        assert done.stderr.startswith("hoglab: ")
        assert words in done.stderr


@pytest.mark.parametrize("command", ["check", "run"])
def test_empty_input(command: str) -> None:
    assert hog(command, "-").returncode == 0


# --- explain


def test_explain(tmp_path: Path) -> None:
    event = tmp_path / "event.json"
    event.write_text(
        '{"event": "buy", "distinct_id": "u", "properties": {"n": 5}, "person": {"properties": {"plan": "pro"}}}'
    )
    done = hog("explain", "--event", event, "event = 'buy' and properties.n > 9")
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "no     all of event = 'buy' and properties.n > 9",
        "  yes    event = 'buy'   (event = \"buy\")",
        "  no     properties.n > 9   (properties.n = 5)",
        "does not match",
    ]
    filters = tmp_path / "filters.json"
    filters.write_text('{"properties": [{"key": "plan", "type": "person", "value": "pro"}]}')
    done = hog("explain", "--event", event, "--json", f"@{filters}")
    assert done.returncode == 0
    found = json.loads(done.stdout)
    assert found["matches"] is True
    assert found["term"]["terms"][0]["sees"] == {"person.properties.plan": "pro"}


@pytest.mark.parametrize(
    ("event", "what", "words"),
    [
        ('{"event": "e"}', "a =", "the filter cannot be used"),
        ('{"event": "e"}', '{"properties": 5}', "the filter cannot be used"),
        ('{"properties": {}}', "true", "the event needs a name"),
        ('{"event": "e", "properties": 5}', "true", "must be objects"),
        ("[1]", "true", "must hold a JSON object"),
    ],
)
def test_explain_mistakes(tmp_path: Path, event: str, what: str, words: str) -> None:
    (tmp_path / "event.json").write_text(event)
    done = hog("explain", "--event", tmp_path / "event.json", what)
    assert done.returncode == 1
    assert words in done.stderr


# --- run


def test_run_with_a_trace(program: Path) -> None:
    program.write_text("let a := 1\nfor (let v in [2]) { a := a + v }\nprint(a)")
    done = hog("run", "--trace", program)
    assert (done.returncode, done.stdout) == (0, "3\n")
    assert [line.split() for line in done.stderr.splitlines()] == [
        ["1", "let", "a", ":=", "1", "a", "=", "1"],
        ["2", "for", "(let", "v", "in", "[2])", "{", "a", ":=", "a", "+", "v", "}", "v", "=", "2"],
        ["2", "a", ":=", "a", "+", "v", "a", "=", "3"],
        ["3", "print(a)"],
    ]


def test_traces_are_bounded(program: Path) -> None:
    program.write_text("let i := 0\nwhile (i < 9000) { i := i + 1; print(i) }")
    done = hog("run", "--trace", program)
    lines = done.stderr.splitlines()
    assert lines[-1] == "... the trace ends after 10000 lines"
    assert len(lines) == 10_001


def test_colours_only_where_they_are_wanted(program: Path) -> None:
    program.write_text("let a := 1")
    assert "\x1b" not in hog("run", "--trace", program).stderr
    assert "\x1b" in hog("run", "--trace", program, FORCE_COLOR="1", TERM="xterm").stderr
    plain = hog("run", "--trace", program, FORCE_COLOR="1", NO_COLOR="1", TERM="xterm").stderr
    assert "\x1b[3" not in plain


def test_a_reader_that_leaves(program: Path) -> None:
    program.write_text("for (let i := 0; i < 5000; i := i + 1) print('a line of some length', i)")
    for command in (["run", str(program)], ["docs"]):
        with subprocess.Popen(
            [*HOGLAB, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.readline()
            process.stdout.close()
            assert "Traceback" not in process.stderr.read()
            process.wait(PATIENCE_S)


# --- docs


def test_docs_of_one_function() -> None:
    done = hog("docs", "upper")
    assert done.stdout.startswith("upper(text: string|null) -> string|null\n")
    assert "upper('straße')   -- 'STRASSE'" in done.stdout
    (found,) = json.loads(hog("docs", "--json", "upper").stdout)
    assert (found["name"], found["category"]) == ("upper", "strings")


def test_docs_by_search_and_by_category() -> None:
    names = {one["name"] for one in json.loads(hog("docs", "--json", "base64").stdout)}
    assert {"base64Encode", "base64Decode", "md5"} <= names
    everything = hog("docs").stdout
    assert "\nstrings\n" in everything
    assert "  arrayMap " in everything
    done = hog("docs", "uppr")
    assert (done.returncode, done.stderr) == (1, "hoglab: no function is about 'uppr'; did you mean upper?\n")
