"""Findings about a text that compiles and is doubtful, for authors: each with its place, a code and often a hint.

Only certain findings are reported. The codes:

| code | severity | what |
|---|---|---|
| `unused-variable`, `unused-parameter`, `unused-function` | warning | never read; a leading underscore silences |
| `shadows-function` | warning | a name hides a function of the library |
| `unknown-name` | warning | a global that nobody provides, or the misspelt name of a variable |
| `too-many-arguments` | warning | a call of an own function that must fail |
| `not-callable`, `not-iterable`, `no-property` | warning | a value that surely is of the wrong kind |
| `wrong-kind`, `not-a-number` | warning | an argument or operand that surely is of the wrong kind |
| `missing-return` | warning | a program whose value somebody needs, and that may end without one |
| `unreachable` | warning | code behind a `return` or `throw` |
| `unused-result`, `no-effect`, `dropped-value` | warning | a value that is thrown away |
| `constant-condition`, `constant-comparison` | warning | always true, or always false |
| `filter-not-boolean` | warning | a filter that never matches |
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hoglab.hog import nodes as n
from hoglab.hog.compiler.types import infer_types
from hoglab.hog.findings.flow import flow_findings, return_findings
from hoglab.hog.findings.names import name_findings
from hoglab.hog.findings.values import filter_findings, value_findings

if TYPE_CHECKING:
    from collections.abc import Collection

    from hoglab.hog.errors import Diagnostic
    from hoglab.hog.program import Program

__all__ = ["findings"]


def findings(
    program: Program, *, known: Collection[str] | None = None, is_filter: bool = False
) -> list[Diagnostic]:
    """Return the findings about a compiled program, expression or template, in no particular order.

    `known` are the globals that an execution will have; the default is the environment's, which
    also names their members. `is_filter` says that the
    text is an expression that decides about events.
    """
    tree, functions = program.tree, program.env.functions
    if tree is None or program.names is None:
        return []
    members = program.env.globals or {}
    globals_ = program.env.globals if known is None else {name: members.get(name) for name in known}
    names = replace(program.names, diagnostics=list(program.diagnostics))
    kinds = infer_types(tree, names, functions)
    name_findings(tree, names, functions, globals_)
    flow_findings(tree, names, functions)
    if program.env.without_value is not None and isinstance(tree, n.Program):
        return_findings(tree, names, program.env.without_value)
    value_findings(tree, names, functions, kinds)
    if is_filter and isinstance(tree, n.Expr):
        filter_findings(tree, names, kinds)
    return names.diagnostics[len(program.diagnostics) :]
