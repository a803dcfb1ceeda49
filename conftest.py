"""Settings that every test shares: Hypothesis profiles of our own.

With ``CI=true`` Hypothesis would load a derandomised profile, and every run would repeat the
same examples. Ours draws anew each time and prints what repeats a failure.
"""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "tests", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("soak", settings.get_profile("tests"), max_examples=5_000)
settings.load_profile(os.environ.get("WORKFLOW_CHECKPOINT_HYPOTHESIS_PROFILE", "tests"))
