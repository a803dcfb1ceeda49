"""One function for many numbers, by as many processes as there are processors.

For work whose input is large and lies in memory already: a process that is forked has all of it at
once, and sends back only what came of it. What comes of it must not depend on the order in which it
is done. Where forking is not safe (another system than Linux, other threads) or not worth it, this
process does everything, and so it does the share of a process that ended before its time.
"""

import multiprocessing
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

PROCESSES_MAX: Final = 4
"""Each takes memory of its own for what it looks at, for looking writes a count into it."""
_TASKS: Final = Path("/proc/self/task")

_T = TypeVar("_T")


def processors() -> int:
    """How many of them this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # a system without affinities
        return os.cpu_count() or 1


def processes_for(work: int, least: int) -> int:
    """How many processes are worth it.

    Args:
        work: how much there is to do, in any unit.
        least: how much of it each has to have.
    """
    if sys.platform != "linux" or multiprocessing.current_process().daemon:
        return 1  # what ends with another process may start none
    if sum(1 for _ in _TASKS.iterdir()) > 1:  # one that holds a lock would hold it for ever
        return 1
    return max(1, min(processors(), PROCESSES_MAX, work // max(least, 1)))


def each(
    function: Callable[[int], _T],
    count: int,
    *,
    processes: int,
    tell: Callable[[int], None] | None = None,
) -> list[_T]:
    """What a function makes of each number below ``count``, in their order.

    Args:
        function: is called in this process or another one; what it returns can be pickled.
        count: of the numbers.
        processes: this one and those that are started; they end with this.
        tell: is told now and then how many are done, about.

    Raises:
        Exception: whatever the function raises.
    """
    found: list[Any] = [None] * count
    others = [_begin(function, range(n, count, processes)) for n in range(1, processes)]
    for n in range(0, count, processes):
        found[n] = function(n)
        if tell is not None:
            tell(min(n + processes, count))
    for share, (process, reader) in enumerate(others, start=1):
        try:
            found[share::processes] = reader.recv()
        except EOFError:
            found[share::processes] = [function(n) for n in range(share, count, processes)]
        process.join()
    return found


def _begin(function: Callable[[int], Any], numbers: range) -> tuple[Any, Any]:
    context = multiprocessing.get_context("fork")
    reader, writer = context.Pipe(duplex=False)

    def work() -> None:
        # Whatever goes wrong goes wrong again, and is told, where the share is done once more.
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - to the end
        writer.send([function(n) for n in numbers])

    process = context.Process(target=work, daemon=True)
    process.start()
    writer.close()
    return process, reader
