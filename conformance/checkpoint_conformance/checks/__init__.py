"""The checks, in the order in which a run goes through them."""

from checkpoint_conformance.checks import (
    controls,
    deadlines,
    example,
    fuzzing,
    http,
    inputs,
    races,
    stateful,
    store,
    vectors,
    walk,
)
from checkpoint_conformance.run import Check

CHECKS: tuple[Check, ...] = (
    *example.CHECKS,
    *inputs.CHECKS,
    *fuzzing.CHECKS,
    *http.CHECKS,
    *walk.CHECKS,
    *vectors.CHECKS,
    *stateful.CHECKS,
    *deadlines.CHECKS,
    *races.CHECKS,
    *controls.CHECKS,
    *store.CHECKS,
)
"""Every check; those of one name are the same with other access."""

__all__ = ["CHECKS"]
