"""``workflow-checkpoint model``: explore the formal model, and draw its graph.

Only Click is imported up here, so that ``--help`` costs nothing; the rest comes when called.
"""

import signal
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console
    from rich.table import Table

    from checkpoint_model.exploration import Exploration, Progress, World

_PLAIN_PROGRESS_SECONDS = 5.0
_INTERRUPTED = 128 + signal.SIGINT
"""The exit status of what Ctrl-C ended, as shells have it."""


@click.group()
def model() -> None:
    """Explore the formal model exhaustively, or draw its graph."""


@model.command()
@click.option(
    "--world",
    "names",
    multiple=True,
    metavar="NAME",
    help="Explore this world; may be given more than once. Without it: all that take seconds.",
)
@click.option("--all", "every", is_flag=True, help="Explore those that take minutes as well.")
@click.option("--list", "list_only", is_flag=True, help="Say which worlds there are.")
def explore(names: tuple[str, ...], every: bool, list_only: bool) -> None:
    """Try every invariant of the contract on every state and step of small worlds.

    Exit code 1 if an invariant is broken, in which case the shortest sequence of requests that
    breaks it is printed, or if a world did not reach what it is there to reach; 130 after Ctrl-C,
    with what was explored until then.
    """
    from rich.console import Console

    from checkpoint_conformance.terminal import Output
    from checkpoint_model import exploration
    from checkpoint_model.worlds import WORLDS

    output, progress = Output(highlight=False), Console(stderr=True, highlight=False)
    if list_only:
        output.print(_worlds_table(tuple(WORLDS.values())))
        return
    for name in names:
        if name not in WORLDS:
            raise click.BadParameter(
                f"there is no world {name!r}. There are: {', '.join(WORLDS)}.",
                param_hint="--world",
            )
    chosen = [WORLDS[name] for name in dict.fromkeys(names)] or [
        world for world in WORLDS.values() if every or not world.takes_minutes
    ]
    found: list[exploration.Exploration] = []
    interrupted = False
    for world in chosen:
        try:
            with _progress(progress, world) as told:
                found.append(exploration.explore(world, on_progress=told))
        except KeyboardInterrupt:
            progress.print(f"Interrupted in the world {world.name}.", markup=False)
            interrupted = True
            break
    if found:
        output.print(_results_table(found))
    for result in found:
        _explain(output, result)
    if interrupted:
        raise SystemExit(_INTERRUPTED)
    if not all(result.passed for result in found):
        raise SystemExit(1)


@model.command()
@click.option(
    "--format",
    "drawing",
    type=click.Choice(["mermaid", "dot", "svg"]),
    default="mermaid",
    show_default=True,
    help="What to write to standard output.",
)
def graph(drawing: str) -> None:
    """Draw the stages: every move with its evidence, retries, and what follows a lapse."""
    from checkpoint_conformance.graph import DRAWINGS

    click.echo(DRAWINGS[drawing](), nl=False)


class _progress:  # noqa: N801  # reads as a function where it is used
    """Tell how far an exploration is: a live line on a terminal, else a line now and then."""

    def __init__(self, console: "Console", world: "World") -> None:
        self._console = console
        self._name = world.name
        self._told_at = 0.0
        self._status = console.status(f"{self._name} …") if console.is_terminal else None

    def __enter__(self) -> "Callable[[Progress], None]":
        if self._status is not None:
            self._status.start()
        else:
            self._console.print(f"exploring {self._name}")
        return self._tell

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def _tell(self, progress: "Progress") -> None:
        line = (
            f"{self._name}: {progress.states:,} states, {progress.transitions:,} transitions, "
            f"depth {progress.depth}, {progress.waiting:,} waiting, {progress.seconds:.0f} s"
        )
        if self._status is not None:
            self._status.update(line)
        elif progress.seconds - self._told_at >= _PLAIN_PROGRESS_SECONDS:
            self._told_at = progress.seconds
            self._console.print(line)


def _worlds_table(worlds: "Sequence[World]") -> "Table":
    table = _table("world", "what it is for", "takes")
    for world in worlds:
        takes = "minutes" if world.takes_minutes else "seconds"
        table.add_row(world.name, world.sentence, takes)
    return table


def _results_table(found: "Sequence[Exploration]") -> "Table":
    table = _table("world", "states", "transitions", "depth", "seconds", "goals", "invariants")
    for column in table.columns[1:6]:
        column.justify = "right"
    for result in found:
        verdict = "hold" if result.passed else "[red]fall short[/]"
        if result.counterexample is not None:
            verdict = "[red]broken[/]"
        table.add_row(
            result.world.name,
            f"{result.states:,}",
            f"{result.transitions:,}",
            str(result.depth),
            f"{result.seconds:.1f}",
            f"{len(result.hit)} of {len(result.promised)}",
            verdict,
        )
    return table


def _table(*headings: str) -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        table.add_column(heading)
    return table


def _explain(console: "Console", result: "Exploration") -> None:
    """What went wrong in a world: the shortest sequence, or the goals."""
    if result.counterexample is not None:
        console.print(f"In the world {result.world.name}:", style="bold")
        console.print(str(result.counterexample), markup=False, soft_wrap=True)
        return
    for shortfall in result.shortfalls:
        console.print(f"In the world {result.world.name}, {shortfall}", markup=False)
