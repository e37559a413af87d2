"""Regular expressions cannot hold the interpreter: where they are compiled, what form they have, and how they fare."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from functools import cache
from typing import Any

import pytest
from tests.house.ambiguity import Automaton
from tests.house.sources import modules

ENGINES = {
    "hoglab.hog.patterns": {"re"},
    "hoglab.patterns": {"re", "re2"},
    "hoglab.hog.rt.regex": {"re2"},
    "hoglab.filters.hog.patterns": {"re2"},
    "hoglab.filters.searching": {"re2"},
    "hoglab.filters.backtracking": {"regex"},
}
"""The modules that compile patterns, with their engines: our own in the first two, those of users in the others."""

ENGINE_NAMED = re.compile(r"\b(re|re2|regex|sre_compile|sre_parse|_sre|_regex)\b")
"""Name of a module that is, or wraps, an engine."""

TRUSTING = {"hoglab.hog.backend_javascript.library", "hoglab.hog.backend_javascript.modules"}
"""Modules whose patterns meet nothing but the runtime library that is part of the product."""

COLLECT = """
import importlib, importlib.util, json, pkgutil, sys
import hoglab
name = "hoglab.hog.patterns"  # without the language around it, which compiles patterns when it is imported
spec = importlib.util.spec_from_file_location(name, hoglab.__path__[0] + "/hog/patterns.py")
patterns = sys.modules[name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(patterns)
found = []
def noting(use, compiled):
    def compile(pattern, flags=0):
        whole = compiled(pattern, flags)
        kind = "bytes" if isinstance(pattern, bytes) else "str"
        text = pattern.decode("latin-1") if kind == "bytes" else pattern
        found.append([use, sys._getframe(1).f_globals["__name__"], kind, text, int(flags)])
        return whole
    return compile
for use in ("anchored", "searched", "trusted"):
    setattr(patterns, use, noting(use, getattr(patterns, use)))
for module in pkgutil.walk_packages(hoglab.__path__, "hoglab."):
    if not module.name.endswith("__main__") and ".migrations." not in module.name:
        importlib.import_module(module.name)
json.dump(found, sys.stdout)
"""


@cache
def compiled() -> list[tuple[str, str, str | bytes, int]]:
    """Return every pattern that our modules compile: its use, the module, its text and its flags."""
    ended = subprocess.run([sys.executable, "-c", COLLECT], capture_output=True, text=True, check=True)
    return [
        (use, module, text.encode("latin-1") if kind == "bytes" else text, flags)
        for use, module, kind, text, flags in json.loads(ended.stdout)
    ]


def test_only_named_modules_import_an_engine() -> None:
    imported = {name: engines_imported(path.read_text()) for name, path in modules().items()}
    assert {name: engines for name, engines in imported.items() if engines} == ENGINES


def engines_imported(source: str) -> set[str]:
    """Return the engines of patterns that a module imports, wherever in it."""
    names: set[str] = set()
    if not ENGINE_NAMED.search(source):
        return names
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=aliases):
                names.update(alias.name.partition(".")[0] for alias in aliases)
            case ast.ImportFrom(module=str(module)):
                names.add(module.partition(".")[0])
            case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(name)), *_]):
                names.add(name.partition(".")[0])
    return {name for name in names if ENGINE_NAMED.fullmatch(name)}


def test_imports_of_engines_are_found() -> None:
    source = (
        "def f():\n import re\nfrom regex import compile\nimport importlib\nimportlib.import_module('re2')"
    )
    assert engines_imported(source) == {"re", "regex", "re2"}


def test_patterns_are_compiled_when_their_module_is_imported() -> None:
    """Others would not be seen here."""
    sources = {name: path.read_text() for name, path in modules().items()}
    late = {name: compiled_late(source) for name, source in sources.items() if "patterns import" in source}
    assert {name: lines for name, lines in late.items() if lines and name not in TRUSTING} == {}


def compiled_late(source: str) -> list[int]:
    """Return the lines of functions in which one of our own patterns is compiled."""
    return [
        call.lineno
        for function in ast.walk(ast.parse(source))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for call in ast.walk(function)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id in {"anchored", "searched", "trusted"}
    ]


def test_patterns_in_functions_are_found() -> None:
    assert compiled_late("def f():\n return searched('a')\nX = searched('b')\ny = lambda: anchored('c')") == [
        2,
        4,
    ]


@pytest.mark.slow
def test_all_modules_were_seen() -> None:
    assert len(compiled()) > 100
    assert {module for use, module, *_ in compiled() if use == "trusted"} == TRUSTING


@pytest.mark.slow
def test_every_pattern_takes_linear_time_by_its_form() -> None:
    judged = {
        (module, pattern): Automaton(pattern, flags, searched=use == "searched").ambiguity()
        for use, module, pattern, flags in compiled()
        if use != "trusted"
    }
    assert {place: reason for place, reason in judged.items() if reason} == {}


@pytest.mark.parametrize(
    ("pattern", "in_place", "in_search"),
    [
        (r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)", False, True),
        (r"[0-9]++(?:\.[0-9]*+)?", True, True),
        (r"[0-9]++(?:\.[0-9]*+)?!", True, False),
        (r"(?<![0-9])[0-9]++!", True, True),
        (r"(a+)+b", False, False),
        (r"(a*)*b", False, False),
        (r"(?:a|ab|b)*c", False, False),
        (r"\s*x?\s*y", False, False),
        (r"a*,a*;", True, False),
        (r"(?:\[[^\]]*\]|[^\s\[])+|>", True, False),
        (r"data=([^&]*)", True, True),
        (r"data=([^&]*)&", True, False),
        (r"data=([^&=]*)&", True, True),
        (r"/\*.*?\*/", True, False),
        (r'"(?:[^"\\]|\\.)*"', True, False),
        (r'"(?:[^"\\]|\\.)*+"?', True, True),
        (r"^a+b", True, True),
        (r"a{0,9}b", True, True),
        (r"(.*),(.*),(.*)!", False, False),
    ],
)
def test_the_form_tells_which_patterns_are_linear(pattern: str, in_place: bool, in_search: bool) -> None:
    assert (Automaton(pattern, 0, searched=False).ambiguity() is None) is in_place
    assert (Automaton(pattern, 0, searched=True).ambiguity() is None) is in_search


ATTACK = """
import json, re, resource, sys, time
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
slow = []
for use, kind, pattern, flags, texts in json.load(sys.stdin):
    compiled = re.compile(pattern.encode("latin-1") if kind == "bytes" else pattern, flags)
    for start, pump, end in texts:
        text = start + pump * (20_000 // len(pump)) + end
        if kind == "bytes":
            text = text.encode("latin-1", "replace")
        begun = time.thread_time()
        compiled.fullmatch(text)
        compiled.match(text)
        if use == "searched":
            sum(1 for _ in compiled.finditer(text))
        taken = time.thread_time() - begun
        if taken > 0.5:
            slow.append([pattern, text[:60] if kind == "str" else repr(text[:60]), taken])
json.dump(slow, sys.stdout)
"""
"""What is linear takes some 10 ms of processor time with 20,000 characters, what is quadratic seconds."""

MAX_PUMPS = 20
"""Largest number of loops of a pattern that are attacked."""


def attacks(use: str, pattern: str | bytes, flags: int) -> list[Any]:
    """Return a pattern with texts that lead to its loops, go round them, and break off."""
    pumps = list(Automaton(pattern, flags, searched=use == "searched").pumps())[:MAX_PUMPS]
    texts = [[start, pump, end] for start, pump in pumps for end in ("\0", "!\n")]
    if isinstance(pattern, bytes):
        return [use, "bytes", pattern.decode("latin-1"), flags, texts]
    return [use, "str", pattern, flags, texts]


@pytest.mark.slow
def test_every_pattern_withstands_texts_made_to_attack_it() -> None:
    work = [attacks(use, pattern, flags) for use, _, pattern, flags in compiled() if use != "trusted"]
    assert sum(len(texts) for *_, texts in work) > 300
    ended = subprocess.run(
        [sys.executable, "-c", ATTACK],
        input=json.dumps(work),
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )
    assert json.loads(ended.stdout) == []
