"""How many examples a property is tried on: a fixed set, or with UVPY_TESTS_EXPLORE=N in the environment N others."""

import os

import hypothesis

EXPLORE = int(os.environ.get("UVPY_TESTS_EXPLORE", "0"))


def load_profile():
    """The same examples in every run, so that a failure is of the change and not of the day."""
    hypothesis.settings.register_profile(
        "uvpy",
        deadline=None,
        database=None,
        derandomize=not EXPLORE,
        # Finding the smallest example of a failure takes longer than a test may; exploring has the time.
        phases=[p for p in hypothesis.Phase if EXPLORE or p not in (hypothesis.Phase.shrink, hypothesis.Phase.explain)],
        suppress_health_check=[
            hypothesis.HealthCheck.function_scoped_fixture,
            hypothesis.HealthCheck.too_slow,
            hypothesis.HealthCheck.data_too_large,
        ],
    )
    hypothesis.settings.load_profile("uvpy")


def examples(count):
    """Decorates a property with the number of examples that a usual run tries."""
    return hypothesis.settings(max_examples=EXPLORE or count)
