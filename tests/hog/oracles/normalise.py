"""The one form in which the official parser's trees and ours are compared.

What is left out or rewritten, and why it may be:

- positions (compared by a test of their own);
- fields that are null, false or an empty list: the official parser writes some of them only for some nodes;
- the marks `from_asterisk` and `notices`, which are empty in what a parser makes;
- numbers become `["num", text]` with the text of the nearest double: beyond 2^53 no machine tells integers apart;
- `is_null_comparison_style` and other marks of how something was written stay, because the formatter needs them.
"""

from __future__ import annotations

import math
from typing import Any

_POSITIONS = ("start", "end", "from_asterisk", "notices")


def normalise(tree: Any) -> Any:
    """The tree without what does not count."""
    if isinstance(tree, list):
        return [normalise(part) for part in tree]
    if not isinstance(tree, dict):
        return tree
    if tree.get("node") == "Constant":
        return {"node": "Constant", "value": _constant(tree)}
    kept = {key: normalise(part) for key, part in tree.items() if key not in _POSITIONS}
    return {key: part for key, part in kept.items() if part is not None and part is not False and part != []}


def _constant(tree: dict[str, Any]) -> Any:
    value = tree["value"]
    if tree.get("value_type") == "number":
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    try:
        number = float(value)
    except OverflowError:
        number = math.inf if value > 0 else -math.inf
    return ["num", "nan" if math.isnan(number) else repr(number)]
