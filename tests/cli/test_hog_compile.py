"""`hoglab hog compile`: the three artefacts, each run by what it is for."""

from __future__ import annotations

import ast
import json
import subprocess
from pathlib import Path

import pytest
from tests.forked import run
from tests.hog.oracles.runners import Machine

SOURCE = (
    "let total := 0\nfor (let n in [1, 2, 3]) { total := total + n }\nprint('sum', total)\nreturn total\n"
)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    file = tmp_path / "sum.hog"
    file.write_text(SOURCE)
    return file


def compiled(*arguments: str | Path) -> str:
    done = run("hog", "compile", *map(str, arguments))
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_bytecode_runs_on_the_official_machine(program: Path, node_modules: Path) -> None:
    machine = Machine(node_modules)
    bytecode = json.loads(compiled(program))
    outcome = machine.ask({"machine": "official", "bytecode": bytecode, "globals": {}})
    machine.close()
    assert (outcome.result, outcome.printed) == ("6", ("sum 6",))
    assert compiled(program, "--to", "bytecode") == compiled(program)


def test_javascript_runs_in_node(program: Path, tmp_path: Path, node_modules: Path) -> None:
    script = tmp_path / "sum.js"
    script.write_text(
        f"const main = () => {{\n{compiled(program, '--to', 'javascript')}}}\nconsole.log(main())\n"
    )
    done = subprocess.run(["node", script], capture_output=True, text=True, check=True)
    assert done.stdout == "sum 6\n6\n"


def test_python_is_python(program: Path) -> None:
    module = ast.parse(compiled(program, "--to", "python"))
    assert [node.name for node in module.body if isinstance(node, ast.FunctionDef)] == ["main"]


def test_a_function_that_browsers_cannot_have_is_refused_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "nap.hog"
    file.write_text("print(1)\nsleep(5)\n")
    done = run("hog", "compile", str(file), "--to", "javascript")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith(f"{file}:2:1: error: Hog function `sleep` does not exist in JavaScript")
