"""What a person sees while a run goes on; what it found is in :mod:`.renderings.terminal`."""

import os
import sys

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.progress import Progress as RichProgress


class Output(Console):
    """Standard output, which its reader may close early: `… | head` is no fault of anybody's.

    What goes on does so to its end, unseen, and its exit status stays its own.
    """

    def on_broken_pipe(self) -> None:
        """Show nothing more."""
        self.quiet = True
        closed_early()


def closed_early() -> None:
    """Let nothing more be written to standard output, the interpreter's last flush included."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class LiveProgress:
    """A line for each check: a bar while it runs on a terminal, a plain line elsewhere.

    Several may be under way, each in a lane; where there are none, all are in lane 0.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars: RichProgress | None = None
        self._tasks: dict[int, TaskID] = {}
        """The bar of each lane."""
        self._stopped = False
        if console.is_terminal:
            self._bars = RichProgress(
                SpinnerColumn(finished_text="[green]✓[/]"),
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                console=console,
            )

    def __enter__(self) -> "LiveProgress":
        """Begin to draw."""
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the terminal as it was."""
        if self._bars is not None:
            if not self._stopped:
                for lane in tuple(self._tasks):
                    self.end(lane)
            self._bars.stop()

    def stopped(self) -> None:
        """What is under way did not come to its end: its bar stays where it is."""
        self._stopped = True

    def check(self, title: str, lane: int = 0) -> None:
        """A check begins."""
        if self._bars is None:
            self._console.print(f"… {title}", highlight=False)
            return
        self.end(lane)
        self._tasks[lane] = self._bars.add_task(escape(title), total=1)

    def advance(self, done: int, of: int, lane: int = 0) -> None:
        """The check in a lane has done so much of so many."""
        if self._bars is not None and lane in self._tasks:
            self._bars.update(self._tasks[lane], completed=done, total=of)

    def end(self, lane: int = 0) -> None:
        """The check in a lane has come to its end."""
        if self._bars is None or lane not in self._tasks:
            return
        task_id = self._tasks.pop(lane)
        task = next(task for task in self._bars.tasks if task.id == task_id)
        self._bars.update(task_id, completed=task.total)
