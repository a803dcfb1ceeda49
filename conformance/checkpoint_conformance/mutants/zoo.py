"""All mutants by their names: the one list of wrong servers."""

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Final

from checkpoint_conformance.mutants.answers import ANSWERS
from checkpoint_conformance.mutants.cells import CELLS
from checkpoint_conformance.mutants.concurrency import CONCURRENCY
from checkpoint_conformance.mutants.controls import CONTROLS
from checkpoint_conformance.mutants.decisions import DECISIONS
from checkpoint_conformance.mutants.documents import DOCUMENTS
from checkpoint_conformance.mutants.faults import FAULTS
from checkpoint_conformance.mutants.leavings import LEAVINGS
from checkpoint_conformance.mutants.logs import LOGS
from checkpoint_conformance.mutants.mutant import Mutant
from checkpoint_conformance.mutants.over_mcp import OVER_MCP
from checkpoint_conformance.mutants.recorded import RECORDED

_ALL: Final = (
    *DECISIONS,
    *CELLS,
    *ANSWERS,
    *CONCURRENCY,
    *CONTROLS,
    *LEAVINGS,
    *LOGS,
    *OVER_MCP,
    *DOCUMENTS,
    *FAULTS,
    *RECORDED,
)
ZOO: Final[Mapping[str, Mutant]] = MappingProxyType({mutant.name: mutant for mutant in _ALL})
assert len(ZOO) == len(_ALL), "two mutants of one name"

EQUIVALENT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "the first row of `claim`, `transition` or `abandon` after any other": (
            "without a record no other row applies"
        ),
        "rows 4 and 5 of `claim` in the other order": "the caller is the holder, or is not",
        "rows 7 and 8 of `claim` in the other order": "a lapsed record is not `failed`",
        "rows 2 and 3 of `transition` in the other order": "the body is the same, or is not",
        "rows 7 and 8 of `transition` in the other order": "the move is in the graph, or is not",
        "rows 3 and 4 of `abandon` in the other order": "a lapsed record is not terminal",
        "`observed_at` ahead by a constant, without controls": (
            "whose clock is right cannot be told from outside: one offset for each deployment is "
            "taken as it is, and only controls show another clock to hold it against"
        ),
    }
)
"""Changes that nobody can tell from a right server, and why; they are no mutants."""


class UnknownMutantError(Exception):
    """There is no such mutant; the message says which come near."""


def chosen(names: Collection[str], kinds: Collection[str]) -> list[Mutant]:
    """The mutants of these names, and those of these kinds, in the zoo's order; else all.

    Raises:
        UnknownMutantError: there is none of a name.
    """
    for name in names:
        if name not in ZOO:
            near = get_close_matches(name, ZOO, n=3)
            hint = f" Did you mean {', '.join(near)}?" if near else ""
            raise UnknownMutantError(f"There is no mutant {name}.{hint}")
    everything = not names and not kinds
    return [m for m in ZOO.values() if everything or m.name in names or m.kind in kinds]
