"""Parts of the compiler for compiling other things than programs: passes over trees, and code generation.

Python is built of `ast` objects and verified as for programs, so that there is only one way to generate code.
"""

from hoglab.hog.backend_bytecode import compile_bytecode
from hoglab.hog.backend_javascript import library_code
from hoglab.hog.backend_javascript.library import in_order
from hoglab.hog.backend_javascript.modules import exports_function
from hoglab.hog.backend_python import assemble
from hoglab.hog.backend_python.build import (
    all_of,
    any_of,
    assign,
    call,
    choose,
    compare,
    const,
    function,
    is_class,
    item,
    method,
    name,
    run,
    store,
)
from hoglab.hog.backend_python.unit import Constants
from hoglab.hog.compiler.analyse import read_paths
from hoglab.hog.compiler.lower import lower
from hoglab.hog.compiler.symbols import SymbolTable, resolve
from hoglab.hog.formatter.unparse import write

__all__ = [
    "Constants",
    "SymbolTable",
    "all_of",
    "any_of",
    "assemble",
    "assign",
    "call",
    "choose",
    "compare",
    "compile_bytecode",
    "const",
    "exports_function",
    "function",
    "in_order",
    "is_class",
    "item",
    "library_code",
    "lower",
    "method",
    "name",
    "read_paths",
    "resolve",
    "run",
    "store",
    "write",
]
