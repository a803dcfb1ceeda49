"""The stages and what leads from one to another, drawn: Mermaid, Graphviz, SVG.

Every word in a drawing comes from the model's tables; only where things stand on the page, and the
sentences about claims below, are written here.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import log10
from types import MappingProxyType
from typing import Final

from checkpoint_model import (
    MOVES,
    SETTLED,
    Claim,
    EvidenceType,
    Record,
    Request,
    Stage,
    Step,
    Transition,
)

FIRST_CLAIM: Final = "claim, generation 1"
"""WC-CLAIM-1."""
RETRY: Final = ("claim if retry_failed,", "generation + 1")
"""WC-CLAIM-7."""
TAKE_OVER: Final = ("lapsed or abandoned,", "then claim, generation + 1")
"""WC-CLAIM-8."""
NO_EVIDENCE: Final = "no evidence"


@dataclass(frozen=True, kw_only=True, slots=True)
class Arrow:
    """One way from a stage to a stage. A move stays in its generation, a claim makes the next."""

    source: Stage
    target: Stage
    label: tuple[str, ...]
    """For a move, the evidence types any one of which it takes."""
    is_claim: bool = False


def arrows() -> tuple[Arrow, ...]:
    """The moves of the graph with their evidence, then the retry and the take-overs."""
    moves = (
        Arrow(source=source, target=target, label=_evidence(kinds))
        for source, targets in MOVES.items()
        for target, kinds in targets.items()
    )
    retry = Arrow(source=Stage.FAILED, target=Stage.CLAIMED, label=RETRY, is_claim=True)
    take_overs = (
        Arrow(source=stage, target=Stage.UNCERTAIN, label=TAKE_OVER, is_claim=True)
        for stage in Stage
        if stage not in SETTLED
    )
    return (*moves, retry, *take_overs)


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One way into a stage as finely as it can be told: a move with one evidence type, a claim."""

    source: Stage | None
    """None for the first claim."""
    target: Stage
    evidence: EvidenceType | None = None
    """None where the move takes none, and for claims."""
    is_claim: bool = False


def cells() -> tuple[Cell, ...]:
    """Every cell of the graph: the first claim, each move with each evidence, the later claims."""
    found = [Cell(source=None, target=Stage.CLAIMED, is_claim=True)]
    for arrow in arrows():
        kinds = [None] if arrow.is_claim else _kinds(MOVES[arrow.source][arrow.target])
        found += (
            Cell(source=arrow.source, target=arrow.target, evidence=kind, is_claim=arrow.is_claim)
            for kind in kinds
        )
    return tuple(found)


def cell_of(before: Record | None, request: Request, decided: Step) -> Cell | None:
    """The cell that a decision goes through; None where it leaves stage and generation."""
    if decided.record is None or decided.record is before:
        return None
    if isinstance(request, Claim):
        first = decided.record.generation == 1
        source = None if first or before is None else before.stage
        return Cell(source=source, target=decided.record.stage, is_claim=True)
    if isinstance(request, Transition) and before is not None:
        return Cell(
            source=before.stage, target=decided.record.stage, evidence=request.evidence_type
        )
    return None


def mermaid() -> str:
    """A Mermaid state diagram, as GitHub and many editors draw it."""
    lines = ["stateDiagram-v2", "    direction LR", f"    [*] --> {Stage.CLAIMED}: {FIRST_CLAIM}"]
    lines += [f"    {arrow.source} --> {arrow.target}: {_sentence(arrow)}" for arrow in arrows()]
    lines += [f"    {stage} --> [*]" for stage in Stage if stage in SETTLED]
    return "\n".join(lines) + "\n"


def dot() -> str:
    """A Graphviz digraph: claims dashed, settled stages with a double line."""
    lines = [
        "digraph workflow_checkpoint {",
        "    rankdir=LR;",
        '    node [shape=box, style=rounded, fontname="Helvetica"];',
        '    edge [fontname="Helvetica", fontsize=10];',
        "    start [shape=point];",
    ]
    lines += [f"    {stage}{' [peripheries=2]' if stage in SETTLED else ''};" for stage in Stage]
    lines.append(f'    start -> {Stage.CLAIMED} [label="{FIRST_CLAIM}", style=dashed];')
    for arrow in arrows():
        style = ", style=dashed" if arrow.is_claim else ""
        label = r"\n".join(arrow.label)
        lines.append(f'    {arrow.source} -> {arrow.target} [label="{label}"{style}];')
    return "\n".join([*lines, "}"]) + "\n"


def _evidence(kinds: frozenset[EvidenceType]) -> tuple[str, ...]:
    return tuple(str(kind or NO_EVIDENCE) for kind in _kinds(kinds))


def _kinds(kinds: frozenset[EvidenceType]) -> Sequence[EvidenceType | None]:
    return [kind for kind in EvidenceType if kind in kinds] or [None]


def _sentence(arrow: Arrow) -> str:
    if arrow.is_claim:
        return " ".join(arrow.label)
    *others, last = arrow.label
    return f"{', '.join(others)} or {last}" if others else last


# -- SVG ----------------------------------------------------------------------------------
# `claimed` on the left, `uncertain` on the right, the settled stages one above the other between
# them: so the six moves that settle fan out from both sides and no two arrows cross.

_WIDTH: Final = 1240
_HEIGHT: Final = 660
_BOX: Final = (176, 52)
_LINE: Final = 17
_CENTRES: Final[Mapping[Stage, tuple[int, int]]] = MappingProxyType(
    {
        Stage.CLAIMED: (208, 330),
        Stage.CALLER_VERIFIED: (600, 178),
        Stage.FAILED: (600, 330),
        Stage.COMPENSATED: (600, 482),
        Stage.UNCERTAIN: (992, 330),
    }
)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Route:
    """Where an arrow runs, and the point that its label stands on or hangs from."""

    path: str
    label: tuple[int, int]
    anchor: str = "middle"
    hangs: bool = False


_MOVE_ROUTES: Final[Mapping[tuple[Stage, Stage], _Route]] = MappingProxyType(
    {
        (Stage.CLAIMED, Stage.UNCERTAIN): _Route(
            path="M 170 304 C 170 40, 240 58, 600 58 S 1030 40, 1030 296", label=(600, 48)
        ),
        (Stage.CLAIMED, Stage.CALLER_VERIFIED): _Route(
            path="M 232 304 C 232 200, 290 178, 504 178", label=(400, 168)
        ),
        (Stage.CLAIMED, Stage.FAILED): _Route(path="M 296 322 H 504", label=(400, 312)),
        (Stage.CLAIMED, Stage.COMPENSATED): _Route(
            path="M 232 356 C 232 460, 290 482, 504 482", label=(400, 490), hangs=True
        ),
        (Stage.UNCERTAIN, Stage.CALLER_VERIFIED): _Route(
            path="M 968 304 C 968 200, 910 178, 696 178", label=(800, 168)
        ),
        (Stage.UNCERTAIN, Stage.FAILED): _Route(path="M 904 330 H 696", label=(800, 320)),
        (Stage.UNCERTAIN, Stage.COMPENSATED): _Route(
            path="M 968 356 C 968 460, 910 482, 696 482", label=(800, 490), hangs=True
        ),
    }
)
_CLAIM_ROUTES: Final[Mapping[tuple[Stage, Stage], _Route]] = MappingProxyType(
    {
        (Stage.FAILED, Stage.CLAIMED): _Route(path="M 512 344 H 304", label=(400, 352), hangs=True),
        (Stage.CLAIMED, Stage.UNCERTAIN): _Route(
            path="M 170 356 C 170 586, 240 572, 600 572 S 1030 586, 1030 364",
            label=(600, 580),
            hangs=True,
        ),
        (Stage.UNCERTAIN, Stage.UNCERTAIN): _Route(
            path="M 1066 304 C 1066 210, 1180 250, 1180 306 S 1120 336, 1088 336",
            label=(1140, 238),
        ),
    }
)
_STYLE: Final = """
    svg { --paper: #ffffff; --ink: #1f2933; --soft: #52606d; --claim: #9a6700;
          --open: #e3f0fb; --open-line: #2f6fab; --good: #e4f5ea; --good-line: #2f8a57;
          --bad: #fdeceb; --bad-line: #b8423a; --undone: #f2edfa; --undone-line: #6d4bab;
          font-family: ui-sans-serif, system-ui, "Segoe UI", Helvetica, Arial, sans-serif; }
    @media (prefers-color-scheme: dark) {
      svg { --paper: #14191f; --ink: #e4e7eb; --soft: #a9b4c0; --claim: #e3b341;
            --open: #17324a; --open-line: #7ab8f0; --good: #17382a; --good-line: #77cf9d;
            --bad: #402321; --bad-line: #f1918a; --undone: #2d2540; --undone-line: #b79cf0; } }
    .paper { fill: var(--paper); }
    .stage { stroke-width: 1.8; fill: var(--open); stroke: var(--open-line); }
    .caller_verified { fill: var(--good); stroke: var(--good-line); }
    .failed { fill: var(--bad); stroke: var(--bad-line); }
    .compensated { fill: var(--undone); stroke: var(--undone-line); }
    .inner { fill: none; stroke-width: 1; }
    .name { font-size: 17px; font-weight: 600; fill: var(--ink); }
    .word { font-size: 13px; fill: var(--soft); }
    .claim { fill: var(--claim); }
    .arrow { fill: none; stroke: var(--soft); stroke-width: 1.6; }
    .dashed { stroke: var(--claim); stroke-dasharray: 6 4; }
    .tip { fill: var(--soft); }
    .claim-tip { fill: var(--claim); }
"""


_COVERAGE_STYLE: Final = """
    svg { --wrong: #c0271d; }
    @media (prefers-color-scheme: dark) { svg { --wrong: #ff8a80; } }
    .untried { opacity: 0.5; stroke-dasharray: 2 5; }
    .word.untried { opacity: 0.75; }
    .wrong { stroke: var(--wrong); stroke-width: 2.4; }
    .word.wrong, .wrong-tip { stroke: none; fill: var(--wrong); }
    .times { font-weight: 600; fill: var(--ink); }
    .wrong .times, .word.wrong .times { fill: var(--wrong); }
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Covered:
    """How often a cell was gone through: with a right answer, and with a wrong one."""

    held: int = 0
    broken: int = 0


def svg(coverage: Mapping[Cell, Covered] | None = None) -> str:
    """A drawing of its own, light or dark as the reader's page is.

    Args:
        coverage: what a run did, to be drawn on it: a count at each cell, arrows the thicker the
            more often they were gone, faint where never, red where an answer was wrong.

    Raises:
        KeyError: the graph has a move for which no place on the page was chosen.
    """
    height = _HEIGHT if coverage is None else _HEIGHT + _LINE
    size = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
    drawn = _Drawn(coverage)
    title = "" if coverage is None else ", with how often a run went through each move"
    style = _STYLE if coverage is None else _STYLE + _COVERAGE_STYLE.removeprefix("\n")
    tips = ("tip", "claim-tip") if coverage is None else ("tip", "claim-tip", "wrong-tip")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title what">',
        f'  <title id="title">The stages of a workflow checkpoint{title}</title>',
        f'  <desc id="what">{escape(_in_words())}</desc>',
        f"  <style>{style}  </style>",
        "  <defs>",
        *(_tip(name) for name in tips),
        "  </defs>",
        f'  <rect class="paper" width="{_WIDTH}" height="{height}" rx="12"/>',
        '  <circle class="claim-tip" cx="26" cy="330" r="7"/>',
        *drawn.arrow(
            _Route(path="M 33 330 H 112", label=(68, 320)),
            tuple(FIRST_CLAIM.split(" ", 1)),
            [cell for cell in cells() if cell.source is None],
        ),
    ]
    for arrow in arrows():
        routes = _CLAIM_ROUTES if arrow.is_claim else _MOVE_ROUTES
        route = routes[arrow.source, arrow.target]
        way = (arrow.source, arrow.target, arrow.is_claim)
        parts += drawn.arrow(
            route,
            arrow.label,
            [cell for cell in cells() if (cell.source, cell.target, cell.is_claim) == way],
        )
    for stage in Stage:
        parts += _box(stage)
    parts += _legend(height - 24)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _in_words() -> str:
    return "; ".join(
        f"from {arrow.source} to {arrow.target}: {_sentence(arrow)}" for arrow in arrows()
    )


def _tip(name: str) -> str:
    return (
        f'    <marker id="{name}" viewBox="0 0 10 10" refX="1" refY="5" markerWidth="6" '
        f'markerHeight="6" orient="auto"><path class="{name}" d="M 0 0 L 10 5 L 0 10 z"/></marker>'
    )


@dataclass(frozen=True, slots=True)
class _Drawn:
    """Draws arrows, with what a run did on them where that is given."""

    coverage: Mapping[Cell, Covered] | None

    def arrow(self, route: _Route, label: Sequence[str], ways: Sequence[Cell]) -> Iterator[str]:
        """An arrow and its words: a word for each cell, or several for one claim."""
        is_claim = ways[0].is_claim
        dashed, tip = (" dashed", "claim-tip") if is_claim else ("", "tip")
        gone = [self._gone(cell) for cell in ways]
        held, broken = sum(g.held for g in gone), sum(g.broken for g in gone)
        state, width = self._state(Covered(held=held, broken=broken)), ""
        if self.coverage is not None and held:
            # A stroke is the thicker by a factor of ten: a run goes some ways once, some a
            # thousand times.
            width = f' style="stroke-width: {1.6 + 0.3 * log10(held):.2f}"'
        tip = "wrong-tip" if broken else tip
        yield (
            f'  <path class="arrow{dashed}{state}"{width} marker-end="url(#{tip})" '
            f'd="{route.path}"/>'
        )
        lines = [
            # A claim is one cell, whatever lines its label has, and its count stands below them.
            (escape(text), "") if is_claim else (escape(text), self._times(gone[number]))
            for number, text in enumerate(label)
        ]
        if is_claim and self.coverage is not None:
            lines.append(("", self._times(gone[0]).replace("> ", ">")))
        x, y = route.label
        first = y + _LINE - 4 if route.hangs else y - _LINE * (len(lines) - 1)
        for number, (text, times) in enumerate(lines):
            state = self._state(gone[0] if is_claim else gone[number])
            yield (
                f'  <text class="word{" claim" if is_claim else ""}{state}" '
                f'text-anchor="{route.anchor}" x="{x}" '
                f'y="{first + number * _LINE}">{text}{times}</text>'
            )

    def _gone(self, cell: Cell) -> Covered:
        return (self.coverage or {}).get(cell, Covered())

    def _state(self, gone: Covered) -> str:
        if self.coverage is None:
            return ""
        if gone.broken:
            return " wrong"
        return "" if gone.held else " untried"

    def _times(self, gone: Covered) -> str:
        if self.coverage is None:
            return ""
        wrong = f", {gone.broken:,} wrong" if gone.broken else ""
        return f'<tspan class="times"> &#215;{gone.held:,}{wrong}</tspan>'


def _box(stage: Stage) -> Iterator[str]:
    (x, y), (width, height) = _CENTRES[stage], _BOX
    left, top = x - width // 2, y - height // 2
    yield (
        f'  <rect class="stage {stage}" x="{left}" y="{top}" width="{width}" height="{height}" '
        'rx="12"/>'
    )
    if stage in SETTLED:
        yield (
            f'  <rect class="stage {stage} inner" x="{left + 4}" y="{top + 4}" '
            f'width="{width - 8}" height="{height - 8}" rx="9"/>'
        )
    yield f'  <text class="name" text-anchor="middle" x="{x}" y="{y + 6}">{stage}</text>'


def _legend(y: int) -> Iterator[str]:
    yield f'  <path class="arrow" marker-end="url(#tip)" d="M 40 {y} H 84"/>'
    yield (
        f'  <text class="word" x="104" y="{y + 4}">transition by the holder of the active claim, '
        "with one of these as evidence</text>"
    )
    yield f'  <path class="arrow dashed" marker-end="url(#claim-tip)" d="M 640 {y} H 684"/>'
    yield (
        f'  <text class="word claim" x="704" y="{y + 4}">claim, by anybody: makes the next '
        "generation and its holder</text>"
    )


DRAWINGS: Final[Mapping[str, Callable[[], str]]] = MappingProxyType(
    {"mermaid": mermaid, "dot": dot, "svg": svg}
)
"""Every format by its name."""
