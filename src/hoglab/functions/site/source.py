"""The source of site functions: TypeScript, converted to JavaScript by removing its types.

Types are replaced by blanks, so that the rest stays in its place. Syntax for which TypeScript would generate code
(enums, namespaces, parameter properties) is refused.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import tree_sitter_typescript
from tree_sitter import Language, Parser

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tree_sitter import Node

MAX_DEPTH = 400
"""Maximum depth of a source: browsers have a limit of their own, which must not be reached."""

_TYPES = frozenset(
    {
        "type_annotation",
        "type_parameters",
        "type_arguments",
        "type_predicate_annotation",
        "asserts_annotation",
        "interface_declaration",
        "type_alias_declaration",
        "ambient_declaration",
        "implements_clause",
        "function_signature",
        "method_signature",
        "abstract_method_signature",
        "index_signature",
        "override_modifier",
    }
)
"""Syntax that concerns types only."""
_TYPED = frozenset({"as_expression", "satisfies_expression", "non_null_expression"})
"""Expressions whose first part is all that runs."""
_MARKED = {
    "optional_parameter": ("?",),
    "public_field_definition": ("?", "!", "readonly", "declare", "abstract", "accessibility_modifier"),
    "method_definition": ("?", "accessibility_modifier"),
    "variable_declarator": ("!",),
    "abstract_class_declaration": ("abstract",),
}
"""Words and signs that mean something to the type checker only, by the syntax around them."""
_GENERATING = {
    "enum_declaration": "enums",
    "internal_module": "namespaces",
    "module": "namespaces",
    "import_alias": "import aliases",
    "export_assignment": "export assignments",
}


class SiteSourceError(Exception):
    """A source cannot be JavaScript; ``line`` and ``column`` are counted from 1 and 0, as in Hog."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column


@lru_cache(maxsize=1)
def _language() -> Language:
    return Language(tree_sitter_typescript.language_typescript())


def javascript_of(source: str) -> str:
    """Return the source without types. Raises `SiteSourceError` for the first mistake in its syntax."""
    encoded = source.encode("utf-8", "surrogatepass")
    root = Parser(_language()).parse(encoded).root_node
    if root.has_error:
        raise _mistake(root)
    text = bytearray(encoded)
    for node in _nodes(root):
        for start, end in _blanks(node):
            text[start:end] = b" " * (end - start)
    return text.decode("utf-8", "surrogatepass")


def _nodes(root: Node) -> Iterator[Node]:
    """Yield every node that runs or holds something that runs, from the outside in."""
    waiting = [(root, 0)]
    while waiting:
        node, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise _error(f"the source is nested deeper than {MAX_DEPTH} levels", node)
        yield node
        if node.type not in _TYPES:
            waiting += [(child, depth + 1) for child in node.children]


def _blanks(node: Node) -> Iterator[tuple[int, int]]:
    """Yield the places in a node's own text that JavaScript must not see."""
    if node.type in _GENERATING and node.is_named:
        raise _error(f"{_GENERATING[node.type]} are not supported", node)
    if node.type in _TYPES:
        yield node.start_byte, node.end_byte
    elif node.type in _TYPED:
        yield node.children[0].end_byte, node.end_byte
    elif node.type == "export_statement":
        declared = node.child_by_field_name("declaration")
        if any(child.type == "type" for child in node.children) or (declared and declared.type in _TYPES):
            yield node.start_byte, node.end_byte
    elif node.type == "formal_parameters":
        for child, after in zip(node.children, node.children[1:], strict=False):
            if (
                child.children and child.children[0].type == "this"
            ):  # gives the type of `this`, and is never passed
                yield child.start_byte, after.end_byte if after.type == "," else child.end_byte
    elif node.type == "required_parameter":
        for child in node.children:
            if child.type in ("accessibility_modifier", "readonly"):
                raise _error("parameter properties are not supported", child)
    for child in node.children if node.type in _MARKED else ():
        if child.type in _MARKED[node.type]:
            yield child.start_byte, child.end_byte


def _mistake(root: Node) -> SiteSourceError:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.is_missing:
            return _error(f"'{node.type}' is missing", node)
        if node.type == "ERROR":
            words = (node.text or b"").decode("utf-8", "replace").split("\n")[0][:40].strip()
            return _error(f"unexpected '{words}'", node)
        waiting += [child for child in reversed(node.children) if child.has_error or child.is_missing]
    return _error("the source cannot be read", root)


def _error(message: str, node: Node) -> SiteSourceError:
    row, column = node.start_point
    return SiteSourceError(message, row + 1, column)
