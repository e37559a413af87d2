"""The routing table: which operations a path has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from hoglab.http.management.routing import METHODS, Operation


@dataclass(slots=True)
class Entry:
    """Everything that one path template can do."""

    template: str
    project_scoped: bool
    operations: dict[str, Operation] = field(default_factory=dict)

    @property
    def allow(self) -> str:
        """The ``Allow`` header: methods in the customary order; HEAD and OPTIONS come with GET."""
        methods = [method for method in METHODS if method in self.operations]
        if "GET" in self.operations:
            methods += ["HEAD", "OPTIONS"]
        return ", ".join(methods)

    def operation(self, method: str) -> Operation | None:
        """Return the operation whose rules govern a method; HEAD and OPTIONS follow those of GET."""
        return self.operations.get("GET" if method in ("HEAD", "OPTIONS") else method)


@dataclass(slots=True)
class _Node:
    statics: dict[str, _Node] = field(default_factory=dict)
    params: dict[str, _Node] = field(default_factory=dict)  # by the name of the parameter
    entry: Entry | None = None


class RoutingTable:
    """Finds the entry of a path by walking its segments; fixed segments win over parameters.

    One slash at the end is ignored. Raises `ValueError` when two operations claim the same path and method, or
    the same path under different names of its parameters.
    """

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._root = _Node()
        self.entries: list[Entry] = []
        self._spellings: dict[tuple[str, ...], str] = {}  # template by what it looks like without names
        for operation in operations:
            self._add(operation)

    def _add(self, operation: Operation) -> None:
        segments = operation.path.strip("/").split("/")
        shape = tuple("{}" if segment.startswith("{") else segment for segment in segments)
        if self._spellings.setdefault(shape, operation.path) != operation.path:
            raise ValueError(f"{operation.path} is {self._spellings[shape]} with other names of parameters")
        node = self._root
        for segment in segments:
            if segment.startswith("{"):
                node = node.params.setdefault(segment[1:-1], _Node())
            else:
                node = node.statics.setdefault(segment, _Node())
        if node.entry is None:
            node.entry = Entry(operation.path, operation.project_scoped)
            self.entries.append(node.entry)
        if operation.method in node.entry.operations:
            raise ValueError(f"{operation.method} {operation.path} is declared twice")
        node.entry.operations[operation.method] = operation

    def find(self, path: str) -> tuple[Entry, dict[str, str]] | None:
        """Return the entry of a decoded path and the texts of its parameters; None when there is none."""
        segments = path[1:-1].split("/") if path.endswith("/") else path[1:].split("/")
        return _walk(self._root, segments, 0, ())

    def operations(self) -> Iterator[Operation]:
        """Yield every operation, in order of declaration."""
        for entry in self.entries:
            yield from entry.operations.values()


def _walk(
    node: _Node, segments: list[str], depth: int, taken: tuple[tuple[str, str], ...]
) -> tuple[Entry, dict[str, str]] | None:
    if depth == len(segments):
        return None if node.entry is None else (node.entry, dict(taken))
    segment = segments[depth]
    fixed = node.statics.get(segment)
    if fixed is not None:
        match = _walk(fixed, segments, depth + 1, taken)
        if match is not None:
            return match
    if segment:
        for name, child in node.params.items():
            match = _walk(child, segments, depth + 1, (*taken, (name, segment)))
            if match is not None:
                return match
    return None
