"""Ctrl-C ends a run wherever it comes."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

_AGAIN_SECONDS: Final = 0.01
"""Enough for what swallowed an interrupt to have returned; if it has not, the next one comes."""


@contextmanager
def insistent() -> Iterator[None]:
    """Have an interrupt of this process come again where Python could tell nobody of it.

    A KeyboardInterrupt that is raised in a finalizer, or in a callback of the garbage collector, is
    printed and dropped. Hypothesis has such a callback, so now and then a run went on after Ctrl-C.
    """
    before = sys.unraisablehook

    def tell(dropped: "UnraisableHookArgs") -> None:
        if issubclass(dropped.exc_type, KeyboardInterrupt):
            again = threading.Timer(_AGAIN_SECONDS, os.kill, (os.getpid(), signal.SIGINT))
            again.daemon = True
            again.start()
        else:
            before(dropped)

    sys.unraisablehook = tell
    try:
        yield
    finally:
        sys.unraisablehook = before
