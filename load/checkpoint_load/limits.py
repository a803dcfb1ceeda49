"""Every bound of a storm, and the names of the storms. Light: read for ``--help`` too."""

from typing import Final

NAMES: Final = ("claim", "recovery", "retry", "replay", "conflict", "hand-over", "mixed")
PROCESSES_MAX: Final = 64
CONTENDERS_DEFAULT: Final = 100
CONTENDERS_MIN: Final = 10
"""Fewer requests at once than this are no storm."""
CONTENDERS_MAX: Final = 10_000
ROUNDS_DEFAULT: Final = 20
ROUNDS_MAX: Final = 1_000_000
DURATION_DEFAULT_SECONDS: Final = 900.0
"""Where only rounds were asked for: what is not done by then makes the run incomplete."""
DURATION_MAX_SECONDS: Final = 86_400.0
LOSE_DEFAULT_PERCENT: Final = 5
LOSE_MAX_PERCENT: Final = 50
IN_FLIGHT_SHARE_MIN: Final = 0.5
"""Of the contenders, how many must wait for their answers at once in the median burst."""
OPEN_FILES_BESIDES: Final = 100
"""Descriptors that a process needs besides one for each contender."""
