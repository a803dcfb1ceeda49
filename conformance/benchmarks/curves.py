"""Curves as pictures: lines over two axes of powers of ten, as SVG.

Made by hand, for they are a few paths and words: no drawing library needs to be installed, and a
picture changes only where what was measured did. Colours follow the reader's: a dark page has a
dark picture.
"""

from collections.abc import Iterator, Sequence
from math import floor, log10
from typing import Final, NamedTuple

WIDTH: Final = 420
HEIGHT: Final = 260
LEFT, TOP, LEGEND = 74, 30, 210
"""Room for the words beside the axes, above, and for the names of the lines."""
COLOURS: Final = (
    ("#0a5cc2", "#6cb0ff"),
    ("#b3390a", "#ff9b6b"),
    ("#1c7a44", "#62d08f"),
    ("#7a3fb5", "#c59bff"),
    ("#7d6400", "#e3c34a"),
    ("#555555", "#b5b5b5"),
)
"""Of the lines, each on a light page and on a dark one."""
DASHES: Final = ("", "6 3", "2 3", "9 3 2 3", "12 4", "4 2")
"""So that lines differ in more than colour."""
_NICE: Final = (1, 2, 5)


class Line(NamedTuple):
    """What is drawn."""

    name: str
    points: Sequence[tuple[float, float]]


class _Axis(NamedTuple):
    ticks: Sequence[float]
    begin: float
    """In pixels; of the first tick."""
    end: float

    def place(self, value: float) -> float:
        """Where a value is."""
        low, high = log10(self.ticks[0]), log10(self.ticks[-1])
        return self.begin + (self.end - self.begin) * (log10(value) - low) / (high - low)


def chart(lines: Sequence[Line], *, title: str, x_label: str, y_label: str) -> str:
    """A picture of lines.

    Args:
        lines: at least one, whose points have the same x; all numbers are greater than nothing.
        title: what readers who do not see it are told.
        x_label: below the horizontal axis.
        y_label: above the vertical one, with its unit.
    """
    xs = sorted({x for line in lines for x, _ in line.points})
    ys = [y for line in lines for _, y in line.points]
    right, bottom = LEFT + WIDTH, TOP + HEIGHT
    across = _Axis(xs, LEFT, right)
    up = _Axis(_ticks(min(ys), max(ys)), bottom, TOP)
    drawn = []
    for x in across.ticks:
        at = f"{across.place(x):.1f}"
        drawn.append(f'<path class="grid" d="M{at} {TOP}V{bottom}"/>')
        drawn.append(f'<text x="{at}" y="{bottom + 18}" text-anchor="middle">{_said(x)}</text>')
    for y in up.ticks:
        at = f"{up.place(y):.1f}"
        drawn.append(f'<path class="grid" d="M{LEFT} {at}H{right}"/>')
        drawn.append(f'<text x="{LEFT - 7}" y="{at}" dy="4" text-anchor="end">{_said(y)}</text>')
    by_height = sorted(range(len(lines)), key=lambda n: -lines[n].points[-1][1])
    for row, number in enumerate(by_height):
        drawn += _line(lines[number], number, across, up)
        drawn += _named(lines[number].name, number, right + 16, TOP + 8 + 19 * row)
    drawn.append(f'<text x="{LEFT}" y="{TOP - 12}">{y_label}</text>')
    drawn.append(
        f'<text x="{LEFT + WIDTH / 2:.0f}" y="{bottom + 38}" text-anchor="middle">{x_label}</text>'
    )
    width, height = right + LEGEND, bottom + 50
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" font-family="sans-serif" font-size="12">\n'
        f"<title>{title}</title>\n<style>{_style(len(lines))}</style>\n"
        '<rect class="page" width="100%" height="100%"/>\n' + "\n".join(drawn) + "\n</svg>\n"
    )


def _line(line: Line, number: int, across: _Axis, up: _Axis) -> Iterator[str]:
    places = [(across.place(x), up.place(y)) for x, y in line.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    yield f'<polyline class="line l{number}" points="{path}"/>'
    for x, y in places:
        yield f'<circle class="dot l{number}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>'


def _named(name: str, number: int, x: int, y: int) -> Iterator[str]:
    yield f'<path class="line l{number}" d="M{x} {y}h26"/>'
    yield f'<text x="{x + 33}" y="{y + 4}">{name}</text>'


def _style(lines: int) -> str:
    def colours(dark: int) -> str:
        page, words, grid = (("#fff", "#222", "#ccc"), ("#0d1117", "#e6e6e6", "#3d444d"))[dark]
        each = "".join(
            f".line.l{n}{{stroke:{colour}}}.dot.l{n}{{fill:{colour}}}"
            for n in range(lines)
            if (colour := COLOURS[n % len(COLOURS)][dark])
        )
        return f".page{{fill:{page}}}text{{fill:{words}}}.grid{{stroke:{grid}}}{each}"

    dashes = "".join(
        f".line.l{n}{{stroke-dasharray:{DASHES[n % len(DASHES)] or 'none'}}}" for n in range(lines)
    )
    dark = f"@media (prefers-color-scheme:dark){{{colours(1)}}}"
    return f".line{{fill:none;stroke-width:2}}{dashes}{colours(0)}{dark}"


def _ticks(least: float, most: float) -> list[float]:
    """One, two and five of each power of ten, from below the least to above the most."""
    found = [
        nice * 10.0**power
        for power in range(floor(log10(least)) - 1, floor(log10(most)) + 2)
        for nice in _NICE
    ]
    first = max(i for i, tick in enumerate(found) if tick <= least)
    last = min(i for i, tick in enumerate(found) if tick >= most)
    if most < 10 * least:
        # On whole powers of ten, or what is nearly flat would look steep.
        first -= first % len(_NICE)
        last += -last % len(_NICE)
    ticks = found[first : max(last, first + 1) + 1]
    if len(ticks) > 2 * len(_NICE) + 1:
        # Of many only the powers of ten, with the ends.
        ticks = [t for i, t in enumerate(ticks) if i in (0, len(ticks) - 1) or log10(t) % 1 == 0]
    return ticks


def _said(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"
