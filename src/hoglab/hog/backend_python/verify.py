"""Verification of generated code: it may use no names but the given ones.

Members of Hog values are dictionary entries, never Python attributes, so a program has no way to write a name.
The check protects against faults of the compiler.
"""

from __future__ import annotations

import dis
import types
from typing import TYPE_CHECKING

from hoglab.hog.backend_python.support import ATTRIBUTES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_FORBIDDEN = frozenset(
    dis.opmap[operation]
    for operation in (
        "IMPORT_NAME", "IMPORT_FROM", "IMPORT_STAR", "STORE_ATTR", "DELETE_ATTR", "STORE_GLOBAL", "DELETE_GLOBAL",
        "DELETE_NAME", "DELETE_SUBSCR", "LOAD_BUILD_CLASS", "LOAD_CLASSDEREF", "SETUP_ANNOTATIONS", "PRINT_EXPR",
        "BEFORE_WITH", "GET_AWAITABLE", "GET_AITER", "LOAD_ASSERTION_ERROR",
    )
    if operation in dis.opmap
)  # fmt: skip


class UnsafeCodeError(Exception):
    """Generated code does something that generated code never does: a fault of the compiler."""


def verify(module: types.CodeType, usual: Collection[str], own: Collection[str]) -> None:
    """Check the functions of a compiled module. Its globals may be the `usual` ones and its `own`.

    Raises `UnsafeCodeError`.
    """
    for code in _codes(module):
        unknown = [
            name for name in code.co_names if name not in usual and name not in own and name not in ATTRIBUTES
        ]
        if unknown:
            raise UnsafeCodeError(f"generated code names {unknown}")
        forbidden = _FORBIDDEN.intersection(code.co_code[::2])
        if forbidden:
            raise UnsafeCodeError(f"generated code uses {sorted(dis.opname[op] for op in forbidden)}")


def _codes(module: types.CodeType) -> Iterator[types.CodeType]:
    """Yield all functions of a module; the module's own code only defines the outermost one."""
    pending = [constant for constant in module.co_consts if isinstance(constant, types.CodeType)]
    while pending:
        code = pending.pop()
        yield code
        pending.extend(constant for constant in code.co_consts if isinstance(constant, types.CodeType))
