"""What the storms are let loose on: wrong servers that only a storm finds out."""

from collections.abc import Iterator
from contextlib import contextmanager

from modelled import NOWHERE

from checkpoint_conformance.mutants.concurrency import TwoSteps
from checkpoint_conformance.mutants.proxy import tampering
from checkpoint_model import Action


@contextmanager
def two_steps(*actions: Action) -> Iterator[str]:
    """The base URL of a server that checks and writes in two steps."""
    decide = TwoSteps(actions=frozenset(actions)) if actions else TwoSteps()
    with tampering(NOWHERE, decide) as address:
        yield address.url
