"""Figures of faults for people: one line of what was made and lost, one row for each kind."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from checkpoint_conformance.plain import plain

_KEPT = {
    "none": "nothing",
    "second": "all but the last two seconds",
    "change": "every acknowledged change",
}


class FaultRow(NamedTuple):
    """One kind of fault, ready to be shown."""

    kind: str
    runs: int
    recovered: int
    cuts: str
    """Connections cut; empty of what is no cut."""
    median: str
    """Milliseconds from its healing to the first good answer; empty where none came."""
    longest: str


def fault_rows(faults: Mapping[str, Any]) -> Iterator[FaultRow]:
    """Each kind that was made."""
    for kind, made in faults["kinds"].items():
        took = made["recovery_ms"]
        yield FaultRow(
            kind=plain(kind, 40),
            runs=made["runs"],
            recovered=made["recovered"],
            cuts="" if made["cuts"] is None else f"{made['cuts']:,}",
            median="" if took is None else f"{took['median']:,.0f}",
            longest="" if took is None else f"{took['max']:,.0f}",
        )


def faults_line(faults: Mapping[str, Any]) -> str:
    """What was made, and what was lost by it."""
    kinds = faults["kinds"]
    runs = sum(made["runs"] for made in kinds.values())
    line = (
        f"Faults: {runs:,} of {len(kinds)} kinds; "
        f"{faults['acknowledged_lost']:,} acknowledged changes lost "
        f"(a crash is to leave {_KEPT.get(faults['durability'], 'nothing')}"
    )
    within = faults["acknowledged_lost_as_declared"]
    line += f", and took {within:,})" if within else ")"
    worst = max(
        (made["recovery_ms"]["max"] for made in kinds.values() if made["recovery_ms"]), default=None
    )
    if worst is not None:
        line += f"; a good answer at the latest {worst:,.0f} ms after each"
    return line
