"""Compiled texts, the results of `compile_program` and its siblings, and their cache."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from hoglab.hog import nodes as n
from hoglab.hog.backend_bytecode import compile_bytecode
from hoglab.hog.backend_javascript import JavaScript, generate_javascript
from hoglab.hog.backend_python import Generated, UnsupportedShapeError, generate, generate_source
from hoglab.hog.backend_python.inputs import InputTemplate, Plain, Rendered, Shape, generate_inputs
from hoglab.hog.compiler.lower import lower
from hoglab.hog.compiler.symbols import SymbolTable, resolve
from hoglab.hog.compiler.templates import Path, map_texts
from hoglab.hog.errors import Diagnostic, HogCompileError, HogSourceError, Position, position_at
from hoglab.hog.interpreter import Interpreted, interpret, interpret_inputs
from hoglab.hog.parser import parse_expression, parse_program, parse_template
from hoglab.hog.parser.recursion import ensure_stack
from hoglab.hog.stdlib import LIBRARY
from hoglab.hog.suggestions import closest, closest_function

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hoglab.hog.env import Environment

Kind = Literal["program", "expression", "template", "inputs"]

CACHED_PROGRAMS = 2_048
"""Maximum number of cached compiled texts."""


@dataclass(slots=True, eq=False)
class Program:
    """A compiled text. The Python function is generated when it is first needed.

    Attributes:
        source: the text; empty for inputs.
        kind: the kind of the text.
        env: the environment of its functions, limits and globals.
        tree: its syntax tree; None for inputs.
        diagnostics: the findings; with one of severity `error` the text compiles but does not work.
        interpreted: whether the text is interpreted instead of compiled to Python, as texts always are whose shape
            Python's compiler refuses.
    """

    source: str
    kind: Kind
    env: Environment
    tree: n.Program | n.Expr | None
    names: SymbolTable | None
    diagnostics: tuple[Diagnostic, ...] = ()
    shapes: tuple[tuple[str, Shape], ...] = ()
    leaves: tuple[tuple[InputTemplate, str, Path], ...] = ()
    interpreted: bool = False
    _generated: Generated | Interpreted | None = field(default=None, repr=False)
    _function: Callable[..., Any] | None = field(default=None, repr=False)
    _bytecode: list[Any] | None = field(default=None, repr=False)

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        """Diagnostics that mean that the text will not work, such as unknown functions."""
        return tuple(diagnostic for diagnostic in self.diagnostics if diagnostic.severity == "error")

    @property
    def bytecode(self) -> list[Any]:
        """The text as bytecode, for the wire (spec: hog-language 5)."""
        if self._bytecode is None:
            if self.tree is None:
                raise ValueError("inputs have no single bytecode")
            self._bytecode = compile_bytecode(self.tree)
        return self._bytecode

    @property
    def javascript(self) -> JavaScript:
        """The text as JavaScript for node and browsers; a program is the body of a function there.

        Raises `HogCompileError` for functions that browsers cannot have (spec: hog-language 11).
        """
        if self.tree is None or self.names is None:
            raise ValueError("inputs have no single JavaScript")
        ensure_stack()
        return generate_javascript(self.tree, self.names, self.env.functions)

    @property
    def python(self) -> str:
        """The generated Python code as text, for people to read."""
        if self.tree is None or self.names is None:
            raise ValueError("the Python of inputs is not shown")
        ensure_stack()
        env = self.env
        depth = env.limits.call_depth
        return generate_source(
            self.tree, self.names, env.functions, sure_roots=env.sure_roots, call_depth=depth
        )

    @property
    def generated(self) -> Generated | Interpreted:
        """Generated code, or the interpreter of the text."""
        if self._generated is None:
            ensure_stack()
            self._generated = self._interpret() if self.interpreted else self._generate()
        return self._generated

    @property
    def function(self) -> Callable[..., Any]:
        """The Python function. If `generated.bounded`, it may be called with the globals alone."""
        if self._function is None:
            self._function = self.generated.link({"render": _render})
        return self._function

    @property
    def reads(self) -> frozenset[tuple[str, ...]]:
        """Paths of globals that the text may read."""
        return self.generated.facts.reads

    @property
    def fingerprint(self) -> str:
        """Hash of the text, to recognise it in journals."""
        return hashlib.sha256(f"{self.kind}:{self.source}".encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def locate(self, line: int, column: int) -> tuple[Position | None, Path]:
        """Return the place in the source (and the input) for a place in the generated code."""
        if self.kind != "inputs":
            return _position(self.source, line, column), ()
        for leaf, text, path in reversed(self.leaves):
            if line > leaf.base_line:
                return _position(text, line - leaf.base_line, column), path
        return None, ()

    def _generate(self) -> Generated | Interpreted:
        env = self.env
        depth = env.limits.call_depth
        try:
            if self.tree is None or self.names is None:
                return generate_inputs(self.shapes, env.functions, call_depth=depth)
            return generate(self.tree, self.names, env.functions, sure_roots=env.sure_roots, call_depth=depth)
        except (UnsupportedShapeError, RecursionError):
            return self._interpret()

    def _interpret(self) -> Interpreted:
        functions = self.env.functions
        depth = self.env.limits.call_depth
        if self.tree is None or self.names is None:
            return interpret_inputs(self.shapes, functions, call_depth=depth)
        return interpret(self.tree, self.names, functions, call_depth=depth)


def _position(source: str, line: int, column: int) -> Position | None:
    offset = 0
    for _ in range(line - 1):
        offset = source.find("\n", offset) + 1
        if not offset:
            return None
    return position_at(source, offset + column)


def _render(_key: str, _globals: Mapping[str, Any]) -> Any:
    raise HogCompileError("No renderer for this input was given", code="no-renderer")


# --- compiling

_cache: OrderedDict[tuple[str, str, Environment], Program] = OrderedDict()
_cache_lock = threading.Lock()


def _cached(kind: Kind, source: str, env: Environment, make: Callable[[], Program]) -> Program:
    key = (kind, source, env)
    with _cache_lock:
        cached = _cache.get(key)
        if cached is not None:
            _cache.move_to_end(key)
            return cached
    program = make()
    with _cache_lock:
        _cache[key] = program
        while len(_cache) > CACHED_PROGRAMS:
            _cache.popitem(last=False)
    return program


def compile_program(source: str, env: Environment, *, interpreted: bool = False) -> Program:
    """Compile a whole program. With `interpreted` it is interpreted instead of translated to Python.

    Raises `HogSyntaxError` or `HogCompileError`; unknown functions are only reported, in `Program.errors`.
    """

    def make() -> Program:
        warnings: list[Diagnostic] = []
        tree = parse_program(source, warnings)
        program = _resolved("program", source, env, tree, warnings)
        program.interpreted = interpreted
        return program

    return make() if interpreted else _cached("program", source, env, make)


def compile_expression(source: str | n.Expr, env: Environment) -> Program:
    """Compile one expression, given as text or as a tree. Raises the errors of `compile_program`."""
    if isinstance(source, n.Expr):
        return _resolved("expression", "", env, source, [])

    def make() -> Program:
        return _resolved("expression", source, env, parse_expression(source), [])

    return _cached("expression", source, env, make)


def compile_template(source: str, env: Environment) -> Program:
    """Compile text with `{expression}` parts. Raises the errors of `compile_program`."""

    def make() -> Program:
        return _resolved("template", source, env, parse_template(source), [])

    return _cached("template", source, env, make)


@dataclass(frozen=True, slots=True)
class Input:
    """One input of a hog function: `mode` is the kind of its texts.

    `hog`: templates of this module. `plain`: just texts. `rendered`: the embedding program renders them in their
    order (Liquid), see `compile_inputs`.
    """

    key: str
    value: Any
    mode: Literal["hog", "plain", "rendered"] = "hog"


def compile_inputs(
    inputs: Sequence[Input],
    env: Environment,
    render: Callable[[str, Mapping[str, Any]], Any] | None = None,
) -> Program:
    """Compile all inputs of a function into one that resolves them in the given order.

    Running it gives a dict. `render(key, globals)` is called for inputs of mode `rendered`; its globals hold the
    inputs resolved so far. Raises the errors of `compile_program`, with `path` set to the place of the faulty
    template.
    """
    leaves: list[tuple[InputTemplate, str, Path]] = []
    diagnostics: list[Diagnostic] = []
    lines = 0

    def parse(text: str, path: Path) -> Shape:
        nonlocal lines
        if "{" not in text and "\\" not in text:
            return Plain(text)
        try:
            tree = parse_template(text)
            program = _resolved("template", text, env, tree, [])
        except HogSourceError as error:
            error.path = path
            raise
        diagnostics.extend(program.diagnostics)
        assert isinstance(program.tree, n.Expr)  # noqa: S101 - a template is one expression
        assert program.names is not None  # noqa: S101 - only inputs have none
        leaf = InputTemplate(program.tree, program.names, lines)
        leaves.append((leaf, text, path))
        lines += text.count("\n") + 1
        return leaf

    shapes: list[tuple[str, Shape]] = []
    for item in inputs:
        if item.mode == "rendered":
            shapes.append((item.key, Rendered()))
        elif item.mode == "plain":
            shapes.append((item.key, Plain(item.value)))
        else:
            shape = map_texts(item.value, parse, (item.key,))
            is_shape = isinstance(shape, (InputTemplate, Plain, dict, list))
            shapes.append((item.key, _plain_leaves(shape) if is_shape else Plain(shape)))
    program = Program("", "inputs", env, None, None, tuple(diagnostics), tuple(shapes), tuple(leaves))
    if render is not None:
        program._function = program.generated.link({"render": render})  # noqa: SLF001
    return program


def _plain_leaves(shape: Any) -> Shape:
    """Return the shape with numbers, booleans and nulls marked as plain values."""
    if isinstance(shape, dict):
        return {key: _plain_leaves(part) for key, part in shape.items()}
    if isinstance(shape, list):
        return [_plain_leaves(part) for part in shape]
    return shape if isinstance(shape, (InputTemplate, Plain)) else Plain(shape)


def _resolved(
    kind: Kind, source: str, env: Environment, tree: n.Program | n.Expr, warnings: list[Diagnostic]
) -> Program:
    tree = lower(tree, source)
    names = resolve(tree, source)
    check_globals(names, env)
    return Program(source, kind, env, tree, names, (*warnings, *names.diagnostics))


def check_globals(names: SymbolTable, env: Environment) -> None:
    """Refuse globals that the environment does not have; report functions that nobody provides."""
    functions = env.functions
    for call in names.calls:
        function = functions.get(call.name)
        if function is None:
            message = f"Hog function `{call.name}` is not implemented"
            names.report("error", "unknown-function", message, call, _function_hint(call.name, names, env))
            continue
        problem = function.arity_error(len(call.args))
        if problem is not None:
            names.report("warning", "arity", problem, call)
    unknown = [
        field
        for field in names.globals
        if env.roots is not None
        and field.chain[0] not in env.roots
        and not (len(field.chain) == 1 and field.chain[0] in functions)
    ]
    if unknown:
        first = unknown[0]
        listed = ", ".join(sorted({field.chain[0] for field in unknown}))
        raise HogCompileError(
            env.refusal.replace("{names}", listed),
            source=names.source,
            start=first.start,
            end=first.end,
            code="unknown-global",
            hint=_quotes_hint(names.source, first) or _global_hint(first.chain[0], env),
        )


def _quotes_hint(source: str, node: n.Field) -> str | None:
    if source[node.start : node.start + 1] == '"':
        return "double quotes make names; strings are written in single quotes"
    return None


def _function_hint(name: str, names: SymbolTable, env: Environment) -> str | None:
    own = {symbol.name for symbol in names.symbols}
    if name in own:
        return f"declare `{name}` before it is called, and not in an inner block"
    if name in LIBRARY:
        return f"`{name}` cannot be used in a {env.name}"
    guess = closest_function(name, {*env.functions, *own})
    return f"did you mean `{guess}`?" if guess else None


def _global_hint(name: str, env: Environment) -> str | None:
    guess = closest(name, env.roots or ())
    return f"did you mean `{guess}`?" if guess else None
