"""A mutant for every cell of the graph: stage, stage and evidence, and what is settled, moved.

Each decides one cell the other way and all others rightly. A cell that a mutant of
:mod:`.decisions` stands for has none here, so that each is there once.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from checkpoint_conformance.checks import walk
from checkpoint_conformance.mutants.mutant import Edit, Edited, Kind, Mutant
from checkpoint_model import MOVES, SETTLED, EvidenceType, Stage


class EvidenceCell(NamedTuple):
    """A move that the holder of an active claim may ask for."""

    source: Stage
    target: Stage
    evidence: EvidenceType | None

    @property
    def right(self) -> bool:
        """Whether the graph has it."""
        needed = MOVES[self.source].get(self.target)
        if needed is None:
            return False
        return self.evidence in needed if needed else self.evidence is None


_TARGETS: Final = tuple(stage for stage in Stage if stage is not Stage.CLAIMED)
EVIDENCE_CELLS: Final = tuple(
    EvidenceCell(source, target, evidence)
    for source in (Stage.CLAIMED, Stage.UNCERTAIN)
    for target in _TARGETS
    for evidence in (None, *EvidenceType)
)
SETTLED_CELLS: Final = tuple(
    (source, target) for source in Stage if source in SETTLED for target in _TARGETS
)
ELSEWHERE: Final[Mapping[EvidenceCell, str]] = {
    EvidenceCell(Stage.CLAIMED, Stage.UNCERTAIN, None): "claimed-cannot-be-uncertain",
    EvidenceCell(
        Stage.CLAIMED, Stage.UNCERTAIN, EvidenceType.EXTERNAL_READ
    ): "uncertain-with-evidence",
    EvidenceCell(Stage.CLAIMED, Stage.FAILED, None): "fails-without-evidence",
    EvidenceCell(Stage.CLAIMED, Stage.FAILED, EvidenceType.PROVIDER_RECEIPT): "fails-by-a-receipt",
    EvidenceCell(Stage.CLAIMED, Stage.FAILED, EvidenceType.NOT_ATTEMPTED): "fails-attempted-only",
    EvidenceCell(
        Stage.CLAIMED, Stage.FAILED, EvidenceType.PROVIDER_REJECTION
    ): "fails-without-rejections",
    EvidenceCell(Stage.UNCERTAIN, Stage.UNCERTAIN, None): "uncertain-again",
    EvidenceCell(
        Stage.UNCERTAIN, Stage.FAILED, EvidenceType.PROVIDER_REJECTION
    ): "uncertain-fails-by-a-rejection",
    EvidenceCell(
        Stage.UNCERTAIN, Stage.FAILED, EvidenceType.NOT_ATTEMPTED
    ): "uncertain-fails-as-not-attempted",
    EvidenceCell(
        Stage.UNCERTAIN, Stage.FAILED, EvidenceType.EXTERNAL_ABSENCE
    ): "uncertain-never-fails-by-absence",
}
"""The cells that a mutant of another name stands for."""


def name_of(cell: EvidenceCell) -> str:
    """The name of the mutant that decides a cell the other way."""
    evidence = cell.evidence or "no-evidence"
    made_up = f"cell-{cell.source}-{cell.target}-{evidence}".replace("_", "-")
    return ELSEWHERE.get(cell, made_up)


def _of_evidence() -> Iterator[Mutant]:
    for cell in EVIDENCE_CELLS:
        if cell in ELSEWHERE:
            continue
        what = f"`{cell.evidence}`" if cell.evidence else "no evidence"
        yield Mutant(
            name=name_of(cell),
            wrong=f"{'Refuses' if cell.right else 'Takes'} {what} for the move from "
            f"`{cell.source}` to `{cell.target}`.",
            kind=Kind.DECISION,
            fault=Edited((_turned(cell),)),
            rules=_broken(cell),
            part=walk.cells,
        )


def _turned(cell: EvidenceCell) -> Edit:
    asked = (
        f"record.stage == '{cell.source}' and to_stage == '{cell.target}' "
        f"and evidence_type == '{cell.evidence or ''}'"
    )
    return Edit(
        action="transition",
        old="if not evidence_accepted or not evidence_accepted[evidence_type] then",
        new=f"""local accepted = evidence_accepted and evidence_accepted[evidence_type] or false
if {asked} then accepted = not accepted end
if not accepted then""",
    )


def _broken(cell: EvidenceCell) -> tuple[str, ...]:
    """The row, and what section 6 says of such a cell below the graph."""
    rules = ["WC-TRANS-8" if cell.right else "WC-TRANS-7"]
    if cell.right or (cell.source, cell.target) == (Stage.UNCERTAIN, Stage.UNCERTAIN):
        rules.append("WC-GRAPH-1")
    elif cell.evidence is None or cell.target is Stage.UNCERTAIN:
        rules.append("WC-GRAPH-2")
    return tuple(rules)


def _of_settled() -> Iterator[Mutant]:
    for source, target in SETTLED_CELLS:
        asked = f"record.stage == '{source}' and to_stage == '{target}'"
        edits = (
            Edit(
                action="transition",
                old="if terminal then return",
                new=f"if terminal and not ({asked}) then return",
            ),
            Edit(
                action="transition",
                old="or not claim_active then return",
                new=f"or not (claim_active or {asked}) then return",
            ),
            Edit(
                action="transition",
                old="GRAPH[record.stage][to_stage]",
                new="(GRAPH[record.stage] or GRAPH.claimed)[to_stage]",
            ),
        )
        yield Mutant(
            name=f"cell-{source}-{target}".replace("_", "-"),
            wrong=f"Lets the holder move what is `{source}` to `{target}`.",
            kind=Kind.DECISION,
            fault=Edited(edits),
            # A failure may be terminal or not, and neither may move.
            rules=("WC-TRANS-5", "WC-TRANS-6") if source is Stage.FAILED else ("WC-TRANS-5",),
            part=walk.cells,
        )


CELLS: tuple[Mutant, ...] = (*_of_evidence(), *_of_settled())
