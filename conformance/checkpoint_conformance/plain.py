"""Text and JSON that a target sent, made fit to be shown: no control characters, bounded.

A target may answer anything. In a shell script a line end would start a command of the target's
choice, in a terminal an escape sequence would move the cursor, and a lone surrogate cannot be
written to any file in UTF-8.
"""

import math
from typing import Any, Final

TEXT_MAX: Final = 8192
"""Characters of one text that are kept; requests of the contract are no longer."""
DEPTH_MAX: Final = 12
MEMBERS_MAX: Final = 200


def plain(text: object, limit: int = TEXT_MAX, *, lines: bool = False) -> str:
    """A text with what does not print written as an escape, and cut at a limit.

    Args:
        text: whatever came.
        limit: characters that are kept; what follows is counted.
        lines: whether line ends and tabs stay.
    """
    whole = str(text)
    kept = whole[:limit]
    if not kept.isprintable():
        stays = "\n\t" if lines else ""
        kept = "".join(c if c.isprintable() or c in stays else _escaped(c) for c in kept)
    cut = len(whole) - limit
    return f"{kept}… ({cut:,} more characters)" if cut > 0 else kept


def bounded(value: Any, depth: int = DEPTH_MAX) -> Any:
    """JSON with long texts, long lists and deep nesting cut, and every number one of JSON's."""
    if isinstance(value, str):
        cut = len(value) - TEXT_MAX
        return f"{value[:TEXT_MAX]}… ({cut:,} more characters)" if cut > 0 else value
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # 1e999 is JSON, Infinity is not
    if isinstance(value, dict | list) and value and depth == 0:
        return "…"
    if isinstance(value, dict):
        kept = list(value.items())[:MEMBERS_MAX]
        members = {bounded(name): bounded(member, depth - 1) for name, member in kept}
        if len(value) > MEMBERS_MAX:
            members["…"] = f"{len(value) - MEMBERS_MAX:,} more members"
        return members
    if isinstance(value, list):
        items = [bounded(item, depth - 1) for item in value[:MEMBERS_MAX]]
        return [*items, "…"] if len(value) > MEMBERS_MAX else items
    return value


def number(count: int, noun: str) -> str:
    """``1 rule``, ``2 rules``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
