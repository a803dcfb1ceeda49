"""The stages and what leads from one to another, drawn: Mermaid, Graphviz, SVG.

Every word in a drawing comes from the model's tables; only where things stand on the page, and the
sentences about claims below, are written here.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from types import MappingProxyType
from typing import Final

from checkpoint_model import MOVES, SETTLED, EvidenceType, Stage

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
    return tuple(str(kind) for kind in EvidenceType if kind in kinds) or (NO_EVIDENCE,)


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


def svg() -> str:
    """A drawing of its own, light or dark as the reader's page is.

    Raises:
        KeyError: the graph has a move for which no place on the page was chosen.
    """
    size = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title what">',
        '  <title id="title">The stages of a workflow checkpoint</title>',
        f'  <desc id="what">{escape(_in_words())}</desc>',
        f"  <style>{_STYLE}  </style>",
        "  <defs>",
        *(_tip(name) for name in ("tip", "claim-tip")),
        "  </defs>",
        f'  <rect class="paper" width="{_WIDTH}" height="{_HEIGHT}" rx="12"/>',
        '  <circle class="claim-tip" cx="26" cy="330" r="7"/>',
        *_arrow(
            _Route(path="M 33 330 H 112", label=(68, 320)),
            tuple(FIRST_CLAIM.split(" ", 1)),
            is_claim=True,
        ),
    ]
    for arrow in arrows():
        routes = _CLAIM_ROUTES if arrow.is_claim else _MOVE_ROUTES
        route = routes[arrow.source, arrow.target]
        parts += _arrow(route, arrow.label, is_claim=arrow.is_claim)
    for stage in Stage:
        parts += _box(stage)
    parts += _legend()
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


def _arrow(route: _Route, label: Sequence[str], *, is_claim: bool) -> Iterator[str]:
    dashed, tip, word = (" dashed", "claim-tip", "word claim") if is_claim else ("", "tip", "word")
    yield f'  <path class="arrow{dashed}" marker-end="url(#{tip})" d="{route.path}"/>'
    x, y = route.label
    first = y + _LINE - 4 if route.hangs else y - _LINE * (len(label) - 1)
    for number, text in enumerate(label):
        yield (
            f'  <text class="{word}" text-anchor="{route.anchor}" x="{x}" '
            f'y="{first + number * _LINE}">{escape(text)}</text>'
        )


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


def _legend() -> Iterator[str]:
    y = _HEIGHT - 24
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
