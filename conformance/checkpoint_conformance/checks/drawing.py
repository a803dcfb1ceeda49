"""How Hypothesis is run inside a check: our own settings, and nothing left behind."""

import gzip
import json
import sys
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from checkpoint_conformance.folders import temporary_folder
from checkpoint_conformance.session import ViolationError

if TYPE_CHECKING:
    from hypothesis import settings

CODEC_FILE: Final = "codec-v2-utf-8.json.gz"
_KINDS: Final[dict[str, type[ViolationError]]] = {}


def draw(play: Callable[["settings"], None], *, examples: int, steps: int = 1) -> None:
    """Run something that Hypothesis drives, with settings of our own.

    Every violation must be in the tally when it is raised; here none comes out. Whatever else
    is raised inside does.
    """
    # Imported here: Hypothesis takes a third of a second, which `--help` need not wait for.
    from hypothesis import HealthCheck, Phase, Verbosity, settings
    from hypothesis.errors import Flaky

    try:
        with at_home():
            play(
                settings(
                    max_examples=examples,
                    stateful_step_count=steps,
                    phases=[Phase.generate, Phase.shrink],
                    database=None,
                    deadline=None,
                    derandomize=False,
                    report_multiple_bugs=True,
                    verbosity=Verbosity.quiet,
                    suppress_health_check=list(HealthCheck),
                )
            )
    except (ViolationError, Flaky, BaseExceptionGroup) as error:
        # A fault that did not show again (Flaky) brings what was raised along.
        others = [e for e in _leaves(error) if not isinstance(e, ViolationError | Flaky)]
        if others:
            raise others[0] from None


_home: list[Path] = []


@contextmanager
def at_home() -> Iterator[None]:
    """Let Hypothesis keep its things in a folder that is removed at the end.

    By itself it keeps them in the working directory, which is somebody else's.
    """
    if _home:
        yield
        return
    from hypothesis.configuration import set_hypothesis_home_dir

    with temporary_folder() as folder:
        _home.append(folder)
        _put_codec(folder)
        set_hypothesis_home_dir(folder)
        try:
            with _knowing_no_source():
                yield
        finally:
            set_hypothesis_home_dir(None)
            _home.clear()


@contextmanager
def _knowing_no_source() -> Iterator[None]:
    """Keep Hypothesis from drawing constants that it finds in source code.

    It looks for them in all modules that are not in site-packages: where the harness runs from a
    checkout a seed would mean something else than where it is installed, and something else after
    every change of it. And reading all of that takes half a second.
    """
    from hypothesis.internal.conjecture import providers

    # In a later version it may have another name: then a test fails, and a run goes on.
    names = ("_get_local_constants", "CONSTANTS_CACHE", "Constants")
    look, permitted, constants = (getattr(providers, name, None) for name in names)
    if look is None or permitted is None or constants is None:
        yield
        return
    nothing = constants()
    providers.__dict__["_get_local_constants"] = lambda: nothing
    permitted.cache.clear()
    try:
        yield
    finally:
        providers.__dict__["_get_local_constants"] = look
        permitted.cache.clear()


def _put_codec(home: Path) -> None:
    """Put there what Hypothesis would find out of UTF-8 by encoding every character there is.

    In a folder that is always new it would do so in every run, for a second and more. Where its
    file is another's in a later version it does so again; a test holds what is written to what
    it finds out.
    """
    folder = home / "unicode_data" / unicodedata.unidata_version
    folder.mkdir(parents=True)
    encodable = [[0, 0xD7FF], [0xE000, sys.maxunicode]]  # all but the surrogates
    content = json.dumps([encodable, []]).encode()
    (folder / CODEC_FILE).write_bytes(gzip.compress(content))


def by_its_rule(error: ViolationError) -> ViolationError:
    """The same as an exception type of its rule, so that Hypothesis shrinks each rule's apart."""
    rule = error.failure.rule
    kind = _KINDS.setdefault(rule, type(rule.replace("-", "_"), (ViolationError,), {}))
    return kind(error.failure)


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]
