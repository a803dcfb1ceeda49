"""The checks, in the order in which a run goes through them."""

from checkpoint_conformance.checks import (
    controls,
    deadlines,
    descriptions,
    doors,
    example,
    faults,
    fuzzing,
    http,
    inputs,
    mcp,
    races,
    stateful,
    store,
    storm,
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
    *storm.CHECKS,
    *controls.CHECKS,
    *store.CHECKS,
    *faults.CHECKS,
    *(
        check.over_mcp()
        for part in (example, inputs, walk, vectors, stateful, races, controls)
        for check in part.CHECKS
    ),
    # With controls a clock that stands still shows more than waiting does, and the wait was had.
    *(check.over_mcp(only_without_controls=True) for check in deadlines.CHECKS),
    *mcp.CHECKS,
    *doors.CHECKS,
    *descriptions.CHECKS,
)
"""Every check; those of one name are the same with other access, or by another binding."""

__all__ = ["CHECKS"]
