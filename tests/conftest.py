"""Settings that every test shares.

Property tests draw the same examples each time, so that a run says something of the change and not
of chance; with SESSIONDEX_TEST_RANDOM=1 they look for new ones.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "default",
    derandomize=not os.environ.get("SESSIONDEX_TEST_RANDOM"),
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("default")
