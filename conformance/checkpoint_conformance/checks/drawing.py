"""How Hypothesis is run inside a check: our own settings, and nothing left behind."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from checkpoint_conformance.folders import temporary_folder
from checkpoint_conformance.session import ViolationError

if TYPE_CHECKING:
    from hypothesis import settings

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
        set_hypothesis_home_dir(folder)
        try:
            yield
        finally:
            set_hypothesis_home_dir(None)
            _home.clear()


def by_its_rule(error: ViolationError) -> ViolationError:
    """The same as an exception type of its rule, so that Hypothesis shrinks each rule's apart."""
    rule = error.failure.rule
    kind = _KINDS.setdefault(rule, type(rule.replace("-", "_"), (ViolationError,), {}))
    return kind(error.failure)


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]
